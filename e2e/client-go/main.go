// Follows the Machines of an API with client-go's informers, as one of the followers that benches/informer.rs compares.
//
// Its first line is its resident memory in KiB before it begins, the second how many seconds passed until its handler had
// received every Machine, the third how many passed from the first update to the last. Then it waits for its end.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var machines = schema.GroupVersionResource{Group: "cluster.x-k8s.io", Version: "v1beta2", Resource: "machines"}

func main() {
	variant := flag.String("variant", "unstructured", "what is kept of a Machine: unstructured, typed or metadata")
	url := flag.String("url", "", "where the API is")
	objects := flag.Int64("objects", 0, "how many Machines there are; each is changed once")
	flag.Parse()
	if err := follow(*variant, *url, *objects); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func follow(variant, url string, objects int64) error {
	if url == "" || objects < 1 {
		return errors.New("--url and --objects are needed: benches/informer.rs gives them")
	}
	config := &rest.Config{Host: url}
	informer, err := informerOf(variant, config)
	if err != nil {
		return err
	}
	resident, err := residentMemory()
	if err != nil {
		return err
	}
	fmt.Println(resident)
	began := time.Now()
	var added, updated atomic.Int64
	var first time.Time
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) {
			if added.Add(1) == objects {
				fmt.Println(time.Since(began).Seconds())
			}
		},
		// One handler is called by one goroutine.
		UpdateFunc: func(any, any) {
			count := updated.Add(1)
			if count == 1 {
				first = time.Now()
			}
			if count == objects {
				fmt.Println(time.Since(first).Seconds())
			}
		},
	})
	if err != nil {
		return err
	}
	informer.RunWithContext(context.Background())
	return nil
}

func informerOf(variant string, config *rest.Config) (cache.SharedIndexInformer, error) {
	switch variant {
	case "unstructured":
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(machines).Informer(), nil
	case "metadata":
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return metadatainformer.NewSharedInformerFactory(client, 0).ForResource(machines).Informer(), nil
	case "typed":
		return typedInformer(config)
	default:
		return nil, fmt.Errorf("--variant %q is none of unstructured, typed, metadata", variant)
	}
}

// typedInformer keeps what this program's informer keeps of a Machine, and no managed fields: a Go program's way to hold
// as little as client-go allows without a decoder of its own.
func typedInformer(config *rest.Config) (cache.SharedIndexInformer, error) {
	group := machines.GroupVersion()
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(group.WithKind("Machine"), &Machine{})
	scheme.AddKnownTypeWithName(group.WithKind("MachineList"), &MachineList{})
	metav1.AddToGroupVersion(scheme, group)
	config = rest.CopyConfig(config)
	config.GroupVersion = &group
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	lists := cache.NewFilteredListWatchFromClient(client, machines.Resource, metav1.NamespaceAll, func(*metav1.ListOptions) {})
	informer := cache.NewSharedIndexInformer(lists, &Machine{}, 0, cache.Indexers{})
	slim := func(object any) (any, error) {
		if machine, ok := object.(*Machine); ok {
			machine.ManagedFields = nil
		}
		return object, nil
	}
	return informer, informer.SetTransform(slim)
}

// residentMemory is VmRSS of this process, in KiB.
func residentMemory() (string, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			return strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), nil
		}
	}
	return "", errors.New("/proc/self/status has no VmRSS")
}
