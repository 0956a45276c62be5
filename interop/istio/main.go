// istiod's discovery server without Kubernetes: Istio's own bootstrap with its in-memory Kubernetes client and a folder of
// configuration, behind a Unix domain socket as an istio-agent has it.
//
//	istio -config FOLDER -socket PATH     prints READY when it serves
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"time"
	"unsafe"

	"istio.io/istio/pilot/pkg/bootstrap"
	kubecontroller "istio.io/istio/pilot/pkg/serviceregistry/kube/controller"
	"istio.io/istio/pkg/config/constants"
	"istio.io/istio/pkg/kube"
)

func main() {
	config := flag.String("config", "", "the folder with Istio's resources as YAML files")
	socket := flag.String("socket", "", "the Unix domain socket to serve on")
	flag.Parse()

	grpcAddress := freeAddress()
	args := bootstrap.NewPilotArgs(func(p *bootstrap.PilotArgs) {
		p.Namespace = constants.IstioSystemNamespace
		p.ServerOptions = bootstrap.DiscoveryServerOptions{
			HTTPAddr: "127.0.0.1:0", MonitoringAddr: "127.0.0.1:0", GRPCAddr: grpcAddress,
		}
		p.RegistryOptions = bootstrap.RegistryOptions{
			FileDir: *config, KubeOptions: kubecontroller.Options{DomainSuffix: constants.DefaultClusterLocalDomain},
		}
		p.ShutdownDuration = time.Millisecond
	})
	server, err := bootstrap.NewServer(args, withKubeClient(kube.NewFakeClient()))
	if err != nil {
		log.Fatal(err)
	}
	stop := make(chan struct{})
	if err := server.Start(stop); err != nil {
		log.Fatal(err)
	}
	if err := relay(*socket, grpcAddress); err != nil {
		log.Fatal(err)
	}
	fmt.Println("READY")
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	close(stop)
}

// withKubeClient sets the client that the bootstrap would make of a cluster's configuration. Only tests in its own package can do
// so by name.
func withKubeClient(client kube.Client) func(*bootstrap.Server) {
	return func(server *bootstrap.Server) {
		field := reflect.ValueOf(server).Elem().FieldByName("kubeClient")
		reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(client))
	}
}

// freeAddress returns an address of the loopback interface for the bootstrap, which does not tell which port it has chosen.
func freeAddress() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// relay does what istio-agent does for a proxyless client: a Unix domain socket in front of the server.
func relay(socket, address string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", address)
			if err != nil {
				client.Close()
				continue
			}
			go pipe(client, server)
			go pipe(server, client)
		}
	}()
	return nil
}

func pipe(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	io.Copy(to, from)
}
