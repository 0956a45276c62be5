package main

import (
	"context"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
)

// snapshots is a SnapshotCache whose one snapshot commands replace.
type snapshots struct {
	cache.SnapshotCache
}

func newSnapshots(ads bool) store {
	return snapshots{cache.NewSnapshotCache(ads, anyNode{}, nil)}
}

func (s snapshots) apply(c command) error {
	if c.Command != "snapshot" {
		return unknownCommand(c)
	}
	next := snapshot{version: c.Version, resources: map[string]map[string]types.ResourceWithTTL{}}
	for _, r := range c.Resources {
		message, err := r.withTTL()
		if err != nil {
			return err
		}
		if next.resources[r.TypeURL] == nil {
			next.resources[r.TypeURL] = map[string]types.ResourceWithTTL{}
		}
		next.resources[r.TypeURL][r.Name] = message
	}
	return s.SetSnapshot(context.Background(), "any", next)
}

// snapshot is a cache.ResourceSnapshot of any types: cache.Snapshot refuses those that it does not know, A99's list among
// them.
type snapshot struct {
	version   string
	resources map[string]map[string]types.ResourceWithTTL
}

func (s snapshot) GetVersion(string) string { return s.version }

func (s snapshot) GetResourcesAndTTL(typeURL string) map[string]types.ResourceWithTTL {
	return s.resources[typeURL]
}

func (s snapshot) GetResources(typeURL string) map[string]types.Resource {
	resources := map[string]types.Resource{}
	for name, resource := range s.resources[typeURL] {
		resources[name] = resource.Resource
	}
	return resources
}

// Versions of single resources are used by incremental xDS alone.
func (s snapshot) ConstructVersionMap() error              { return nil }
func (s snapshot) GetVersionMap(string) map[string]string { return nil }
