package main

import (
	loadstats "github.com/envoyproxy/go-control-plane/envoy/service/load_stats/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// loadReports is a LoadReportingService, which go-control-plane leaves to its users: it asks for all clusters every second and
// prints what clients report.
type loadReports struct {
	loadstats.UnimplementedLoadReportingServiceServer
	out *lines
}

func (l *loadReports) StreamLoadStats(stream loadstats.LoadReportingService_StreamLoadStatsServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	err := stream.Send(&loadstats.LoadStatsResponse{SendAllClusters: true, LoadReportingInterval: durationpb.New(1e9)})
	if err != nil {
		return err
	}
	for {
		report, err := stream.Recv()
		if err != nil {
			return err
		}
		for _, cluster := range report.GetClusterStats() {
			var succeeded uint64
			for _, locality := range cluster.GetUpstreamLocalityStats() {
				succeeded += locality.GetTotalSuccessfulRequests()
			}
			l.out.print(map[string]any{
				"event": "load", "cluster": cluster.GetClusterName(), "succeeded": succeeded,
				"dropped": cluster.GetTotalDroppedRequests(),
			})
		}
	}
}
