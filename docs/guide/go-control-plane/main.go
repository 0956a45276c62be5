// A small control plane on go-control-plane: the service "shop" is an aggregate of two clusters, in order of preference.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"strconv"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	aggregatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:18000", "the address of the control plane")
	eu := flag.String("eu", "127.0.0.1:50051", "the backend of the cluster shop-eu")
	us := flag.String("us", "127.0.0.1:50052", "the backend of the cluster shop-us")
	flag.Parse()

	snapshot, err := cache.NewSnapshot("1", map[resource.Type][]types.Resource{
		resource.ListenerType: {listener("shop", "shop-routes")},
		resource.RouteType:    {routes("shop-routes", "shop")},
		resource.ClusterType:  {aggregate("shop", "shop-eu", "shop-us"), eds("shop-eu"), eds("shop-us")},
		resource.EndpointType: {endpoints("shop-eu", *eu), endpoints("shop-us", *us)},
	})
	check(err)

	// ads=false: answer a request with the resources that it names, even if it does not name all that exist.
	snapshots := cache.NewSnapshotCache(false, sameForAll{}, nil)
	check(snapshots.SetSnapshot(context.Background(), sameForAll{}.ID(nil), snapshot))

	// Ordered: clusters are sent before the routes that name them.
	ads := server.NewServer(context.Background(), snapshots, nil, sotw.WithOrderedADS())
	socket, err := net.Listen("tcp", *listen)
	check(err)
	log.Printf("xDS on %s", socket.Addr())
	grpcServer := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(grpcServer, ads)
	check(grpcServer.Serve(socket))
}

// sameForAll gives every node the same snapshot. cache.IDHash gives each node id its own.
type sameForAll struct{}

func (sameForAll) ID(*corev3.Node) string { return "all" }

func listener(name, routes string) *listenerv3.Listener {
	return &listenerv3.Listener{
		Name: name,
		ApiListener: &listenerv3.ApiListener{ApiListener: pack(&hcmv3.HttpConnectionManager{
			RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{
				Rds: &hcmv3.Rds{ConfigSource: overADS(), RouteConfigName: routes},
			},
			HttpFilters: []*hcmv3.HttpFilter{{
				Name:       "router",
				ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: pack(&routerv3.Router{})},
			}},
		})},
	}
}

func routes(name, cluster string) *routev3.RouteConfiguration {
	return &routev3.RouteConfiguration{
		Name: name,
		VirtualHosts: []*routev3.VirtualHost{{
			Name:    "all",
			Domains: []string{"*"},
			Routes: []*routev3.Route{{
				Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: ""}},
				Action: &routev3.Route_Route{Route: &routev3.RouteAction{
					ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster},
				}},
			}},
		}},
	}
}

func aggregate(name string, clusters ...string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:     name,
		LbPolicy: clusterv3.Cluster_CLUSTER_PROVIDED,
		ClusterDiscoveryType: &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name:        "envoy.clusters.aggregate",
			TypedConfig: pack(&aggregatev3.ClusterConfig{Clusters: clusters}),
		}},
	}
}

func eds(name string) *clusterv3.Cluster {
	return &clusterv3.Cluster{
		Name:                 name,
		ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
		EdsClusterConfig:     &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS()},
	}
}

func endpoints(name, address string) *endpointv3.ClusterLoadAssignment {
	host, text, err := net.SplitHostPort(address)
	check(err)
	port, err := strconv.ParseUint(text, 10, 16)
	check(err)
	return &endpointv3.ClusterLoadAssignment{
		ClusterName: name,
		Endpoints: []*endpointv3.LocalityLbEndpoints{{
			Locality:            &corev3.Locality{Zone: name},
			LoadBalancingWeight: wrapperspb.UInt32(1), // a locality without a weight gets no RPCs
			LbEndpoints: []*endpointv3.LbEndpoint{{
				HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
					Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
						Address:       host, // an IP address, not a name
						PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
					}}},
				}},
			}},
		}},
	}
}

func overADS() *corev3.ConfigSource {
	return &corev3.ConfigSource{
		ResourceApiVersion:    corev3.ApiVersion_V3,
		ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}},
	}
}

func pack(message proto.Message) *anypb.Any {
	packed, err := anypb.New(message)
	check(err)
	return packed
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
