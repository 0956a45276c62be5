// A management server built on go-control-plane, scripted over its standard input.
//
// It prints one JSON object per line: first {"port": N}, then the answer to each command and an event for each request of a
// client and each load report. Commands are JSON objects, one per line, with an id that the answer repeats:
//
//	{"id": 1, "command": "snapshot", "version": "7", "resources": [{"type_url": "...", "name": "...", "value": "BASE64"}]}
//	{"id": 2, "command": "update", "resources": [...], "remove": [{"type_url": "...", "name": "..."}]}   with -cache=linear
//
// A resource with "wrapped": true gets a TTL, which makes go-control-plane put it into a Resource wrapper.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
)

type command struct {
	ID        int        `json:"id"`
	Command   string     `json:"command"`
	Version   string     `json:"version"`
	Resources []resource `json:"resources"`
	Remove    []key      `json:"remove"`
}

// store is a cache of go-control-plane that commands can change.
type store interface {
	cache.Cache
	apply(command) error
}

func main() {
	kind := flag.String("cache", "snapshot", "snapshot: one SnapshotCache; linear: a MuxCache of one LinearCache per type")
	ads := flag.Bool("ads", false, "the SnapshotCache withholds answers to requests that do not name all resources of a type")
	ordered := flag.Bool("ordered", false, "responses are sent in the order of their types (sotw.WithOrderedADS)")
	port := flag.Int("port", 0, "the port on the loopback interface, 0 for a free one")
	flag.Parse()

	var resources store
	switch *kind {
	case "snapshot":
		resources = newSnapshots(*ads)
	case "linear":
		resources = newLinear()
	default:
		log.Fatalf("-cache=%s: not one of snapshot, linear", *kind)
	}
	var options []config.XDSOption
	if *ordered {
		options = append(options, sotw.WithOrderedADS())
	}

	out := &lines{encoder: json.NewEncoder(os.Stdout)}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	grpcServer := grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(grpcServer,
		server.NewServer(context.Background(), resources, callbacks(out), options...))
	loadstats.RegisterLoadReportingServiceServer(grpcServer, &loadReports{out: out})
	go func() { log.Fatal(grpcServer.Serve(listener)) }()
	out.print(map[string]any{"port": listener.Addr().(*net.TCPAddr).Port})

	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 64<<20)
	for input.Scan() {
		var next command
		err := json.Unmarshal(input.Bytes(), &next)
		if err == nil {
			err = resources.apply(next)
		}
		answer := map[string]any{"id": next.ID, "error": ""}
		if err != nil {
			answer["error"] = err.Error()
		}
		out.print(answer)
	}
	// The end of the input is the end of the server: it never outlives its test.
}

// lines prints JSON objects, one per line, from any goroutine.
type lines struct {
	mu      sync.Mutex
	encoder *json.Encoder
}

func (l *lines) print(object map[string]any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.encoder.Encode(object); err != nil {
		log.Fatal(err)
	}
}

// callbacks prints streams and requests as events.
func callbacks(out *lines) server.CallbackFuncs {
	return server.CallbackFuncs{
		StreamOpenFunc: func(_ context.Context, stream int64, _ string) error {
			out.print(map[string]any{"event": "open", "stream": stream})
			return nil
		},
		StreamClosedFunc: func(stream int64, _ *core.Node) {
			out.print(map[string]any{"event": "closed", "stream": stream})
		},
		StreamRequestFunc: func(stream int64, request *discovery.DiscoveryRequest) error {
			out.print(map[string]any{
				"event": "request", "stream": stream, "type_url": request.GetTypeUrl(), "names": request.GetResourceNames(),
				"version": request.GetVersionInfo(), "nonce": request.GetResponseNonce(),
				"error": request.GetErrorDetail().GetMessage(), "node": request.GetNode().GetId(),
			})
			return nil
		},
		StreamResponseFunc: func(_ context.Context, stream int64, _ *discovery.DiscoveryRequest, response *discovery.DiscoveryResponse) {
			out.print(map[string]any{
				"event": "response", "stream": stream, "type_url": response.GetTypeUrl(), "version": response.GetVersionInfo(),
				"nonce": response.GetNonce(), "count": len(response.GetResources()),
			})
		},
	}
}

// anyNode makes all clients share one snapshot.
type anyNode struct{}

func (anyNode) ID(*core.Node) string { return "any" }

func unknownCommand(c command) error {
	return fmt.Errorf("unknown command %q for this cache", c.Command)
}
