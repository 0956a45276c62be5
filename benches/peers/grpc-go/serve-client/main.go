// A client of grpc-go for .ci/serve-peers: for each line on stdin it makes one health check, and prints the name of the
// backend that answered, or the error.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	_ "google.golang.org/grpc/xds" // the xds:/// resolver and its policies
)

func main() {
	conn, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	client := health.NewHealthClient(conn)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		var header metadata.MD
		if _, err := client.Check(ctx, &health.HealthCheckRequest{}, grpc.Header(&header)); err != nil {
			fmt.Println("error", err)
		} else {
			fmt.Println(header.Get("backend")[0])
		}
		cancel()
	}
}
