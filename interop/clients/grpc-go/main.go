// An xDS client on grpc-go for the suite of the folder above: calls grpc.testing.TestService/EmptyCall at a steady rate, prints a
// JSON object per RPC ({"peer": ...} or {"status": ...}) and serves CSDS on a port of the loopback interface.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/admin"
	"google.golang.org/grpc/credentials/insecure"
	xdscreds "google.golang.org/grpc/credentials/xds"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	_ "google.golang.org/grpc/xds"
	"google.golang.org/protobuf/types/known/emptypb"
)

func main() {
	target := flag.String("server", "", "the target, xds:///name")
	port := flag.Int("stats_port", 0, "the port of CSDS")
	qps := flag.Int("qps", 50, "RPCs per second")
	flag.Parse()

	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	adminServer := grpc.NewServer()
	cleanup, err := admin.Register(adminServer)
	if err != nil {
		log.Fatal(err)
	}
	defer cleanup()
	go adminServer.Serve(listener)

	credentials, err := xdscreds.NewClientCredentials(xdscreds.ClientOptions{FallbackCreds: insecure.NewCredentials()})
	if err != nil {
		log.Fatal(err)
	}
	channel, err := grpc.NewClient(*target, grpc.WithTransportCredentials(credentials))
	if err != nil {
		log.Fatal(err)
	}
	var mu sync.Mutex
	encoder := json.NewEncoder(os.Stdout)
	for range time.Tick(time.Second / time.Duration(*qps)) {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			var header metadata.MD
			err := channel.Invoke(ctx, "/grpc.testing.TestService/EmptyCall", &emptypb.Empty{}, &emptypb.Empty{}, grpc.Header(&header))
			outcome := map[string]string{}
			if err != nil {
				outcome["status"] = status.Code(err).String()
				outcome["message"] = status.Convert(err).Message()
			} else if peer := header.Get("hostname"); len(peer) > 0 {
				outcome["peer"] = peer[0]
			}
			mu.Lock()
			defer mu.Unlock()
			encoder.Encode(outcome)
		}()
	}
}
