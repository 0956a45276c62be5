// A grpc-go server that requires client certificates. It answers every unary RPC with the first URI name of the client's
// certificate as field 2, which is the backend's name in the echo service of proxyless-testkit.
//
//	mtls-server CERTIFICATE KEY CA
//
// It prints its address, and ends at the end of stdin.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: mtls-server CERTIFICATE KEY CA")
	}
	identity, err := tls.LoadX509KeyPair(args[0], args[1])
	if err != nil {
		return err
	}
	roots, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(roots) {
		return errors.New("no root certificate")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{identity},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    clients,
		})),
		grpc.UnknownServiceHandler(answer),
	)
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	return server.Serve(listener)
}

func answer(_ any, stream grpc.ServerStream) error {
	if err := stream.RecvMsg(&emptypb.Empty{}); err != nil {
		return err
	}
	caller, ok := peer.FromContext(stream.Context())
	if !ok {
		return errors.New("no peer")
	}
	info, ok := caller.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 || len(info.State.PeerCertificates[0].URIs) == 0 {
		return errors.New("no certificate with a URI name")
	}
	name := info.State.PeerCertificates[0].URIs[0].String()
	response := &emptypb.Empty{}
	response.ProtoReflect().SetUnknown(protowire.AppendString(
		protowire.AppendTag(nil, 2, protowire.BytesType), name))
	return stream.SendMsg(response)
}
