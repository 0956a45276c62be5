package main

import (
	"fmt"
	"time"

	aggregate "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/aggregate/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"

	// The types of resources.
	_ "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
)

// key names a resource.
type key struct {
	TypeURL string `json:"type_url"`
	Name    string `json:"name"`
}

// resource is a resource as commands have it.
type resource struct {
	key
	Value   []byte `json:"value"`
	Wrapped bool   `json:"wrapped"`
}

// A day: no client sees such a resource expire.
var ttl = 24 * time.Hour

// message decodes the resource into its Go type.
func (r resource) message() (types.Resource, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByURL(r.TypeURL)
	if err != nil {
		return nil, fmt.Errorf("%s %q: %w", r.TypeURL, r.Name, err)
	}
	message := kind.New().Interface()
	if err := proto.Unmarshal(r.Value, message); err != nil {
		return nil, fmt.Errorf("%s %q: %w", r.TypeURL, r.Name, err)
	}
	// A list of clusters (A99) has no name of its own, and go-control-plane asks the resource for it.
	if list, ok := message.(*aggregate.ClusterConfig); ok {
		return namedList{list, r.Name}, nil
	}
	return message, nil
}

func (r resource) withTTL() (types.ResourceWithTTL, error) {
	message, err := r.message()
	if err != nil || !r.Wrapped {
		return types.ResourceWithTTL{Resource: message}, err
	}
	return types.ResourceWithTTL{Resource: message, TTL: &ttl}, nil
}

// namedList is a ClusterConfig with a name.
type namedList struct {
	*aggregate.ClusterConfig
	name string
}

func (l namedList) GetName() string { return l.name }
