package main

import (
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	resources "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

// linear is a MuxCache of one LinearCache per type, each of which has its own version.
type linear struct {
	cache.MuxCache
	byType map[string]*cache.LinearCache
}

func newLinear() store {
	l := &linear{byType: map[string]*cache.LinearCache{}}
	l.Caches = map[string]cache.Cache{}
	l.Classify = func(request *cache.Request) string { return request.GetTypeUrl() }
	for _, typeURL := range []string{resources.ListenerType, resources.RouteType, resources.ClusterType, resources.EndpointType} {
		l.byType[typeURL] = cache.NewLinearCache(typeURL)
		l.Caches[typeURL] = l.byType[typeURL]
	}
	return l
}

func (l *linear) apply(c command) error {
	if c.Command != "update" {
		return unknownCommand(c)
	}
	changed := map[string]map[string]types.Resource{}
	removed := map[string][]string{}
	for _, r := range c.Resources {
		message, err := r.message()
		if err != nil {
			return err
		}
		if changed[r.TypeURL] == nil {
			changed[r.TypeURL] = map[string]types.Resource{}
		}
		changed[r.TypeURL][r.Name] = message
	}
	for _, k := range c.Remove {
		removed[k.TypeURL] = append(removed[k.TypeURL], k.Name)
	}
	for typeURL, one := range l.byType {
		if len(changed[typeURL])+len(removed[typeURL]) > 0 {
			if err := one.UpdateResources(changed[typeURL], removed[typeURL]); err != nil {
				return err
			}
		}
	}
	return nil
}
