import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Server;
import io.grpc.ServerBuilder;
import io.grpc.ServerCredentials;
import io.grpc.ServerInterceptors;
import io.grpc.TlsChannelCredentials;
import io.grpc.TlsServerCredentials;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.testing.integration.AbstractInteropTest;
import io.grpc.testing.integration.TestServiceImpl;
import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;

/** gRPC's interop server and client on grpc-java: its own implementations, behind the flags of ../../../../../peers.py. */
public final class Peer {
  private final Map<String, String> flags = new HashMap<>();
  private final List<String> cases = new ArrayList<>();

  public static void main(String[] args) throws Exception {
    Peer peer = new Peer();
    for (int i = 1; i < args.length; i++) {
      if (args[i].startsWith("-")) {
        peer.flags.put(args[i].substring(1), args[++i]);
      } else {
        peer.cases.add(args[i]);
      }
    }
    switch (args[0]) {
      case "server" -> peer.serve();
      case "client" -> System.exit(peer.runCases());
      default -> throw new IllegalArgumentException(args[0] + ": neither server nor client");
    }
  }

  private void serve() throws Exception {
    TestServiceImpl service = new TestServiceImpl(Executors.newSingleThreadScheduledExecutor());
    Server server =
        NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0), serverCredentials())
            .maxInboundMessageSize(AbstractInteropTest.MAX_MESSAGE_SIZE)
            .addService(ServerInterceptors.intercept(service, TestServiceImpl.interceptors()))
            .build()
            .start();
    System.out.println(server.getPort());
    server.awaitTermination();
  }

  private ServerCredentials serverCredentials() throws IOException {
    if (!flags.containsKey("certificate")) {
      return InsecureServerCredentials.create();
    }
    return TlsServerCredentials.newBuilder()
        .keyManager(new File(flags.get("certificate")), new File(flags.get("key")))
        .trustManager(new File(flags.get("ca")))
        .clientAuth(TlsServerCredentials.ClientAuth.REQUIRE)
        .build();
  }

  private ChannelCredentials channelCredentials() throws IOException {
    if (!flags.containsKey("certificate")) {
      return InsecureChannelCredentials.create();
    }
    return TlsChannelCredentials.newBuilder()
        .keyManager(new File(flags.get("certificate")), new File(flags.get("key")))
        .trustManager(new File(flags.get("ca")))
        .build();
  }

  private int runCases() throws Exception {
    ChannelCredentials credentials = channelCredentials();
    for (String name : cases) {
      Cases test = new Cases(flags.get("server"), credentials);
      test.setUp();
      try {
        test.run(name);
      } catch (Throwable failure) {
        System.out.println("FAILED " + name + ": " + failure);
        failure.printStackTrace(System.out);
        return 1;
      } finally {
        test.tearDown();
      }
      System.out.println("PASSED " + name);
    }
    return 0;
  }

  /** The cases of grpc-java's interop client. */
  private static final class Cases extends AbstractInteropTest {
    private final String server;
    private final ChannelCredentials credentials;

    Cases(String server, ChannelCredentials credentials) {
      this.server = server;
      this.credentials = credentials;
    }

    @Override
    protected ManagedChannelBuilder<?> createChannelBuilder() {
      return Grpc.newChannelBuilder(server, credentials)
          .maxInboundMessageSize(AbstractInteropTest.MAX_MESSAGE_SIZE)
          .intercept(createCensusStatsClientInterceptor());
    }

    @Override
    protected ServerBuilder<?> getHandshakerServerBuilder() {
      return null;
    }

    @Override
    protected boolean metricsExpected() {
      return false; // the server is in another process
    }

    void run(String name) throws Exception {
      switch (name) {
        case "empty_unary" -> emptyUnary();
        case "large_unary" -> largeUnary();
        case "client_compressed_unary" -> clientCompressedUnary(true);
        case "server_compressed_unary" -> serverCompressedUnary();
        case "client_streaming" -> clientStreaming();
        case "client_compressed_streaming" -> clientCompressedStreaming(true);
        case "server_streaming" -> serverStreaming();
        case "server_compressed_streaming" -> serverCompressedStreaming();
        case "ping_pong" -> pingPong();
        case "empty_stream" -> emptyStream();
        case "custom_metadata" -> customMetadata();
        case "status_code_and_message" -> statusCodeAndMessage();
        case "special_status_message" -> specialStatusMessage();
        case "unimplemented_method" -> unimplementedMethod();
        case "unimplemented_service" -> unimplementedService();
        case "cancel_after_begin" -> cancelAfterBegin();
        case "cancel_after_first_response" -> cancelAfterFirstResponse();
        case "timeout_on_sleeping_server" -> timeoutOnSleepingServer();
        default -> throw new IllegalArgumentException("unknown case " + name);
      }
    }
  }
}
