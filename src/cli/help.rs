//! The groups of flags in help texts, and the examples below them. A test parses each example.

pub(super) const SCOPE: &str = "Which node groups";
pub(super) const CLUSTERS: &str = "Clusters";
pub(super) const GRPC: &str = "gRPC for Cluster Autoscaler";
pub(super) const OBSERVE: &str = "Probes, metrics and status page";
pub(super) const SCALING: &str = "Scaling";
pub(super) const TEMPLATES: &str = "Node templates";
pub(super) const FLEET: &str = "Fleet (many Clusters, each with its own Cluster Autoscaler)";
pub(super) const SERVER: &str = "Running server";
pub(super) const SELECTION: &str = "What to show";
pub(super) const OUTPUT: &str = "Output";
pub(super) const NOTIFICATIONS: &str = "Notifications";

pub(super) const SERVE_EXAMPLES: &str = "\
Examples:
  # The node groups of one Cluster; its Nodes are read by the Secret prod-kubeconfig
  capi-autoscaler-provider serve --cluster team-a/prod
  # Try it beside a running provider: answers reads, writes nothing
  capi-autoscaler-provider serve --cluster team-a/prod --kubeconfig mgmt.yaml --read-only
  # In a Pod, for a Cluster Autoscaler with a client certificate
  capi-autoscaler-provider serve --cluster team-a/prod --listen 0.0.0.0:8086 --tls-cert-file tls.crt --tls-key-file tls.key --tls-client-ca-file ca.crt";

pub(super) const GROUPS_EXAMPLES: &str = "\
Examples:
  # All node groups of a server in a Pod, by kubectl port-forward deployment/NAME 8081
  capi-autoscaler-provider groups
  # Those with \"gpu\" in their names, with more columns, every 2 seconds
  watch capi-autoscaler-provider groups gpu -o wide
  # What isn't a node group, and why
  capi-autoscaler-provider groups --namespace team-a --all";

pub(super) const CLUSTERS_EXAMPLES: &str = "\
Examples:
  # All Clusters, those that need attention first
  capi-autoscaler-provider clusters
  # Of one namespace, with the certificates of their callers
  capi-autoscaler-provider clusters --namespace team-a -o wide
  # Of another replica, for a script
  capi-autoscaler-provider clusters --server http://127.0.0.1:9081 -o json";

pub(super) const LOG_LEVEL_EXAMPLES: &str = "\
Examples:
  # Show the present level
  capi-autoscaler-provider log-level
  # Show each call of Cluster Autoscaler, until the next start
  capi-autoscaler-provider log-level info,service=debug
  # Back to the default
  capi-autoscaler-provider log-level info";

pub(super) const EXPLAIN_EXAMPLES: &str = "\
Examples:
  # Why does this node group have these resources?
  capi-autoscaler-provider explain md/team-a/workers --cluster team-a/prod
  # Without any cluster: manifests, before they are applied
  capi-autoscaler-provider explain -f manifests/
  # A dump; whatif says which Pods would fit
  kubectl get machinedeployments,devmachinetemplates -A -o yaml | capi-autoscaler-provider explain -f -";

pub(super) const CHECK_EXAMPLES: &str = "\
Examples:
  # Would serve work with these flags?
  capi-autoscaler-provider check --cluster team-a/prod
  # Every single check, by a context of your kubeconfig
  capi-autoscaler-provider check --cluster team-a/prod --context mgmt -v
  # In a pipeline: warnings fail too
  capi-autoscaler-provider check --cluster team-a/prod --strict -o json";

pub(super) const WATCH_EXAMPLES: &str = "\
Examples:
  # What happens to Cluster API's objects of one Cluster, one line a change
  capi-autoscaler-provider watch --cluster team-a/prod -o line
  # Every field that changes in Machines, but for their conditions' messages
  capi-autoscaler-provider watch machines -A --ignore /status/conditions/*/message
  # The Nodes of the workload cluster
  capi-autoscaler-provider watch nodes --target workload --cluster team-a/prod";

pub(super) const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  # bash, for all users
  capi-autoscaler-provider completions bash > /etc/bash_completion.d/capi-autoscaler-provider
  # zsh, for you
  capi-autoscaler-provider completions zsh > ~/.zfunc/_capi-autoscaler-provider
  # fish, for you
  capi-autoscaler-provider completions fish > ~/.config/fish/completions/capi-autoscaler-provider.fish";

pub(super) const MAN_EXAMPLES: &str = "\
Examples:
  # For you
  capi-autoscaler-provider man ~/.local/share/man/man1
  # For all users
  capi-autoscaler-provider man /usr/local/share/man/man1
  # To look at
  capi-autoscaler-provider man man1";
