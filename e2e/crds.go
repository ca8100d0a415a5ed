// Package e2e pins the outside components that the end-to-end tests run against.
// Nothing here is compiled into the program.
package e2e

// Cluster API's CRDs are read from this module's directory; the import keeps it in go.mod and go.sum.
import _ "sigs.k8s.io/cluster-api/feature"
