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
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
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
	hostname := grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		// What clients of the interop contract take as the name of the peer.
		if err := grpc.SetHeader(ctx, metadata.Pairs("hostname", "grpc-go")); err != nil {
			return nil, err
		}
		return handler(ctx, request)
	})
	grpcServer := grpc.NewServer(grpc.Creds(transport(true)), hostname)
	testgrpc.RegisterTestServiceServer(grpcServer, interop.NewTestServer())
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(grpcServer.Serve(listener))
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
	default:
		log.Fatalf("unknown case %s", name)
	}
	fmt.Println("PASSED", name)
}
