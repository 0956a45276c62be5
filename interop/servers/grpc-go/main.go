// gRPC's interop server and client on grpc-go: its own implementations, behind flags.
//
//	server [-certificate FILE -key FILE -ca FILE]     prints its port
//	client -server ADDRESS [TLS flags] CASE...        runs cases against a server; exits with 1 at the first failure
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

var (
	server      = flag.String("server", "", "the address of the server that cases run against")
	certificate = flag.String("certificate", "", "PEM file of the own certificate")
	key         = flag.String("key", "", "PEM file of its key")
	ca          = flag.String("ca", "", "PEM file of the certificates that peers are verified by")
)

func main() {
	mode := os.Args[1]
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		log.Fatal(err)
	}
	switch mode {
	case "server":
		serve()
	case "client":
		for _, name := range flag.Args() {
			runCase(name)
		}
	default:
		log.Fatalf("%s: neither server nor client", mode)
	}
}

func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	grpcServer := grpc.NewServer(grpc.Creds(transport(true)), grpc.UnaryInterceptor(compressResponse))
	testgrpc.RegisterTestServiceServer(grpcServer, interop.NewTestServer())
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(grpcServer.Serve(listener))
}

// compressResponse does what the package's own server does not: compression as the request asks for.
func compressResponse(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if simple, ok := request.(*testpb.SimpleRequest); ok && simple.GetResponseCompressed().GetValue() {
		if err := grpc.SetSendCompressor(ctx, gzip.Name); err != nil {
			return nil, err
		}
	}
	return handler(ctx, request)
}

// transport returns mTLS by the files of the flags, or plaintext without them.
func transport(isServer bool) credentials.TransportCredentials {
	if *certificate == "" {
		return insecure.NewCredentials()
	}
	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		log.Fatal(err)
	}
	pem, err := os.ReadFile(*ca)
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		log.Fatalf("%s has no certificate", *ca)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}}
	if isServer {
		config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, roots
	} else {
		config.RootCAs = roots
	}
	return credentials.NewTLS(config)
}

// runCase runs one of the cases of grpc-go's interop package, which ends the process if it fails.
func runCase(name string) {
	channel, err := grpc.NewClient(*server, grpc.WithTransportCredentials(transport(false)))
	if err != nil {
		log.Fatal(err)
	}
	defer channel.Close()
	client := testgrpc.NewTestServiceClient(channel)
	unimplemented := testgrpc.NewUnimplementedServiceClient(channel)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	switch name {
	case "empty_unary":
		interop.DoEmptyUnaryCall(ctx, client)
	case "large_unary":
		interop.DoLargeUnaryCall(ctx, client)
	case "client_streaming":
		interop.DoClientStreaming(ctx, client)
	case "server_streaming":
		interop.DoServerStreaming(ctx, client)
	case "ping_pong":
		interop.DoPingPong(ctx, client)
	case "empty_stream":
		interop.DoEmptyStream(ctx, client)
	case "timeout_on_sleeping_server":
		interop.DoTimeoutOnSleepingServer(ctx, client)
	case "cancel_after_begin":
		interop.DoCancelAfterBegin(ctx, client)
	case "cancel_after_first_response":
		interop.DoCancelAfterFirstResponse(ctx, client)
	case "custom_metadata":
		interop.DoCustomMetadata(ctx, client)
	case "status_code_and_message":
		interop.DoStatusCodeAndMessage(ctx, client)
	case "special_status_message":
		interop.DoSpecialStatusMessage(ctx, client)
	case "unimplemented_method":
		interop.DoUnimplementedMethod(ctx, channel)
	case "unimplemented_service":
		interop.DoUnimplementedService(ctx, unimplemented)
	case "client_compressed_unary":
		clientCompressedUnary(ctx, client)
	case "client_compressed_streaming":
		clientCompressedStreaming(ctx, client)
	case "server_compressed_unary":
		serverCompressedUnary(ctx, client)
	case "large_metadata":
		largeMetadata(ctx, client)
	default:
		log.Fatalf("unknown case %s", name)
	}
	fmt.Println("PASSED", name)
}

// The cases below are not in grpc-go's interop package.

func large() *testpb.SimpleRequest {
	return &testpb.SimpleRequest{ResponseSize: 314159, Payload: &testpb.Payload{Body: make([]byte, 271828)}}
}

func unary(ctx context.Context, client testgrpc.TestServiceClient, request *testpb.SimpleRequest, options ...grpc.CallOption) {
	response, err := client.UnaryCall(ctx, request, options...)
	if err != nil {
		log.Fatal(err)
	}
	if size := len(response.GetPayload().GetBody()); size != 314159 {
		log.Fatalf("a response of %d bytes", size)
	}
}

func clientCompressedUnary(ctx context.Context, client testgrpc.TestServiceClient) {
	request := large()
	request.ExpectCompressed = &testpb.BoolValue{Value: true}
	if _, err := client.UnaryCall(ctx, request); status.Code(err) != codes.InvalidArgument {
		log.Fatalf("the server does not see that a message is not compressed: %v", err)
	}
	unary(ctx, client, request, grpc.UseCompressor(gzip.Name))
	request.ExpectCompressed.Value = false
	unary(ctx, client, request)
}

// clientCompressedStreaming has a stream for each message: grpc-go compresses all messages of a stream or none.
func clientCompressedStreaming(ctx context.Context, client testgrpc.TestServiceClient) {
	send := func(size int, compressed bool, options ...grpc.CallOption) (*testpb.StreamingInputCallResponse, error) {
		stream, err := client.StreamingInputCall(ctx, options...)
		if err != nil {
			log.Fatal(err)
		}
		request := &testpb.StreamingInputCallRequest{
			Payload: &testpb.Payload{Body: make([]byte, size)}, ExpectCompressed: &testpb.BoolValue{Value: compressed}}
		// An error of the stream is told by CloseAndRecv.
		_ = stream.Send(request)
		return stream.CloseAndRecv()
	}
	if _, err := send(27182, true); status.Code(err) != codes.InvalidArgument {
		log.Fatalf("the server does not see that a message is not compressed: %v", err)
	}
	for size, options := range map[int][]grpc.CallOption{27182: {grpc.UseCompressor(gzip.Name)}, 45904: nil} {
		response, err := send(size, len(options) > 0, options...)
		if err != nil {
			log.Fatal(err)
		}
		if total := response.GetAggregatedPayloadSize(); total != int32(size) {
			log.Fatalf("the server received %d bytes instead of %d", total, size)
		}
	}
}

// serverCompressedUnary checks the contents alone: whether a message was compressed is not shown to callers.
func serverCompressedUnary(ctx context.Context, client testgrpc.TestServiceClient) {
	for _, compressed := range []bool{true, false} {
		request := large()
		request.ResponseCompressed = &testpb.BoolValue{Value: compressed}
		unary(ctx, client, request)
	}
}

func largeMetadata(ctx context.Context, client testgrpc.TestServiceClient) {
	const key = "x-grpc-test-echo-initial"
	value := strings.Repeat("v", 6*1024)
	var header metadata.MD
	_, err := client.UnaryCall(metadata.AppendToOutgoingContext(ctx, key, value), &testpb.SimpleRequest{}, grpc.Header(&header))
	if err != nil {
		log.Fatal(err)
	}
	if echoed := header.Get(key); len(echoed) != 1 || echoed[0] != value {
		log.Fatal("the metadata was not echoed")
	}
}
