import io.grpc.CallOptions;
import io.grpc.ClientCall;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.xds.XdsChannelCredentials;
import io.grpc.xds.CsdsService;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * An xDS client on grpc-java for the suite of the folder above: calls grpc.testing.TestService/EmptyCall at a steady rate, prints
 * a JSON object per RPC ({"peer": ...} or {"status": ...}) and serves CSDS on a port of the loopback interface.
 */
public final class InteropClient {
  private static final Metadata.Key<String> HOSTNAME =
      Metadata.Key.of("hostname", Metadata.ASCII_STRING_MARSHALLER);

  /** The messages of EmptyCall are empty. */
  private static final class Nothing implements MethodDescriptor.Marshaller<byte[]> {
    @Override
    public InputStream stream(byte[] value) {
      return new ByteArrayInputStream(value);
    }

    @Override
    public byte[] parse(InputStream stream) {
      return new byte[0];
    }
  }

  public static void main(String[] args) throws Exception {
    Map<String, String> flags = new HashMap<>();
    for (String arg : args) {
      String[] parts = arg.substring(2).split("=", 2);
      flags.put(parts[0], parts[1]);
    }
    NettyServerBuilder.forAddress(
            new InetSocketAddress("127.0.0.1", Integer.parseInt(flags.get("stats_port"))),
            InsecureServerCredentials.create())
        .addService(CsdsService.newInstance())
        .build()
        .start();
    ManagedChannel channel =
        Grpc.newChannelBuilder(
                flags.get("server"), XdsChannelCredentials.create(InsecureChannelCredentials.create()))
            .build();
    MethodDescriptor<byte[], byte[]> method =
        MethodDescriptor.<byte[], byte[]>newBuilder()
            .setType(MethodDescriptor.MethodType.UNARY)
            .setFullMethodName("grpc.testing.TestService/EmptyCall")
            .setRequestMarshaller(new Nothing())
            .setResponseMarshaller(new Nothing())
            .build();
    long period = 1_000_000_000L / Integer.parseInt(flags.getOrDefault("qps", "50"));
    Executors.newScheduledThreadPool(1)
        .scheduleAtFixedRate(() -> call(channel, method), 0, period, TimeUnit.NANOSECONDS);
  }

  private static void call(ManagedChannel channel, MethodDescriptor<byte[], byte[]> method) {
    ClientCall<byte[], byte[]> call =
        channel.newCall(method, CallOptions.DEFAULT.withDeadlineAfter(20, TimeUnit.SECONDS));
    call.start(
        new ClientCall.Listener<byte[]>() {
          private String peer = "";

          @Override
          public void onHeaders(Metadata headers) {
            peer = headers.get(HOSTNAME);
          }

          @Override
          public void onClose(Status status, Metadata trailers) {
            print(status.isOk() ? "peer" : "status", status.isOk() ? peer : status.getCode().name());
          }
        },
        new Metadata());
    call.sendMessage(new byte[0]);
    call.halfClose();
    call.request(2);
  }

  private static synchronized void print(String key, String value) {
    System.out.println("{\"" + key + "\": \"" + value + "\"}");
  }
}
