//! The sources of a cluster's configuration. Each load reads the files or the Secret of a source again, so code that
//! follows changes keeps the source and replaces the clients.

use std::{
    env, fmt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::{
    Clients, ClusterRef, ConnectError, Proxies, SecretName, SecretNameError, SecretRef,
    client::Stacks,
    error::{chain, kubeconfig_reason},
    rotation::Fingerprint,
    secret::kubeconfig_of_secret,
};

/// The path of the service account's token in every Pod.
const SERVICE_ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// The kubeconfig where no other is named, as kubectl finds it.
const USUAL_PLACES: &str = "KUBECONFIG or ~/.kube/config";

/// A configuration from this program's own environment. The operator controls it, so it may name files and programs.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Source {
    /// The service account in a Pod, else `KUBECONFIG`, else `~/.kube/config`.
    #[default]
    Default,
    /// The service account of the Pod.
    InCluster,
    /// A kubeconfig file, with its current context.
    File(PathBuf),
    /// A context of a kubeconfig file; without a file, of `KUBECONFIG` or `~/.kube/config`.
    Context {
        /// The kubeconfig file.
        file: Option<PathBuf>,
        /// The name of the context.
        name: String,
    },
}

/// The source of the workload cluster's clients.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WorkloadSource {
    /// The management cluster is the workload cluster: its clients serve both.
    Management,
    /// A configuration of its own.
    Own(Source),
    /// A Secret of the Cluster's namespace, read through the management cluster.
    Secret(SecretRef),
    /// None: the Nodes aren't read.
    None,
    /// Clients that a maker makes for this Cluster.
    Made(ClusterRef, ClientMaker),
}

/// The configuration found by one read.
pub(super) struct Loaded {
    pub(super) fingerprint: Fingerprint,
    /// True if a user of the kubeconfig has a token, which may expire soon.
    pub(super) has_token: bool,
    stacks: Stacks,
    /// The words for the API server's certificate and this configuration, if it isn't verified.
    unverified: Option<String>,
}

impl Loaded {
    /// Returns the stacks of a configuration that comes into force.
    pub(super) fn in_force(self) -> Stacks {
        if let Some(unverified) = self.unverified {
            tracing::warn!(
                "{unverified} isn't verified, by insecure-skip-tls-verify: whoever is on the way to it can read the \
                 credentials and answer for the cluster; state certificate-authority-data instead"
            );
        }
        self.stacks
    }
}

/// The result of a read.
pub(super) enum Found {
    Configuration(Loaded),
    /// Clients without a configuration, or with one that another task follows.
    Clients(Clients),
}

impl Source {
    /// Reads the configuration and builds the clients. This makes no request, so an API server that is down causes no
    /// error.
    ///
    /// # Errors
    /// When there is no configuration, it is broken, or its certificates, key or credentials can't be used.
    pub async fn connect(&self) -> Result<Clients, ConnectError> {
        Ok(self.load().await?.in_force().into_clients())
    }

    pub(super) async fn load(&self) -> Result<Loaded, ConnectError> {
        let (config, fingerprint) = match self {
            Self::File(path) => from_file(path, None).await?,
            Self::Context { file: Some(path), name } => from_file(path, Some(name)).await?,
            Self::Context { file: None, name } => from_usual_places(Some(name)).await?,
            Self::InCluster => in_cluster()?,
            Self::Default if is_in_pod() => in_cluster()?,
            Self::Default => from_usual_places(None).await?,
        };
        let unverified = config.accept_invalid_certs.then(|| {
            // Not the whole URL, which may have a password.
            let host = config.cluster_url.host().unwrap_or_default();
            format!("{self}: the certificate of the API server {host}")
        });
        Ok(Loaded { fingerprint, has_token: false, stacks: build(config, || self.to_string())?, unverified })
    }
}

impl WorkloadSource {
    /// Builds the workload cluster's clients; for a Secret, by one request to the management cluster.
    ///
    /// # Errors
    /// The errors of [`Source::connect`], and an error if the Secret can't be read or used. Only an operator can fix
    /// errors of the configuration. Errors of the Secret may be temporary: see [`WorkloadSource::access_in_time`].
    pub async fn connect(&self, management: &Clients) -> Result<Clients, ConnectError> {
        Ok(match self.load(management).await? {
            Found::Configuration(loaded) => loaded.in_force().into_clients(),
            Found::Clients(clients) => clients,
        })
    }

    pub(super) async fn load(&self, management: &Clients) -> Result<Found, ConnectError> {
        match self {
            Self::Management => Ok(Found::Clients(management.clone())),
            Self::Made(cluster, maker) => Ok(Found::Clients(maker.make(cluster))),
            Self::None => Err(ConnectError::Unusable("no Nodes are read, by --workload-nodes=none".to_owned())),
            Self::Own(source) => source.load().await.map(Found::Configuration),
            Self::Secret(secret) => {
                let kubeconfig = kubeconfig_of_secret(&management.writes, secret).await?;
                let fingerprint = Fingerprint::of_kubeconfig(&kubeconfig);
                let mut users = kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref());
                let has_token = users.any(|user| user.token.is_some());
                let invalid = |reason| format!("{secret}: its kubeconfig can't be used: {reason}");
                let config = resolve(kubeconfig, invalid).await?;
                let stacks = build(config, || self.to_string())?;
                // A Secret that asks for no verification is refused.
                Ok(Found::Configuration(Loaded { fingerprint, has_token, stacks, unverified: None }))
            }
        }
    }

    /// Returns the Secret that is read.
    pub fn secret(&self) -> Option<&SecretRef> {
        match self {
            Self::Management | Self::Own(_) | Self::None | Self::Made(..) => None,
            Self::Secret(secret) => Some(secret),
        }
    }

    /// Returns true if the clients can be built without an API server, so that a failure at start is the operator's.
    pub fn connects_at_once(&self) -> bool {
        match self {
            Self::Management | Self::Own(_) | Self::Made(..) => true,
            Self::Secret(_) | Self::None => false,
        }
    }
}

/// Builds the clients' stacks. A proxy in the kubeconfig takes precedence over the environment's.
fn build(mut config: Config, origin: impl Fn() -> String) -> Result<Stacks, ConnectError> {
    let own = config.proxy_url.take();
    let proxies = Proxies::of_environment().and_then(|proxies| match own {
        Some(url) => proxies.with_own(&url.to_string()),
        None => Ok(proxies),
    });
    let proxies = proxies.map_err(|error| ConnectError::Unusable(format!("{}: {error}", origin())))?;
    Stacks::new(config, proxies).map_err(|error| {
        ConnectError::Unusable(format!(
            "{}: can't build a client from it: {}: check its certificates, key and credentials",
            origin(),
            chain(&error)
        ))
    })
}

async fn from_file(path: &Path, context: Option<&str>) -> Result<(Config, Fingerprint), ConnectError> {
    let origin = format!("kubeconfig file {}", path.display());
    let broken = |reason| format!("{origin}: {reason}: try it with kubectl --kubeconfig");
    let kubeconfig = Kubeconfig::read_from(path).map_err(|error| match error {
        KubeconfigError::ReadConfig(error, _) => {
            format!("{origin}: can't read it: {error}: give the path of a file that this program may read")
        }
        other => broken(kubeconfig_reason(&other)),
    });
    let mut kubeconfig = kubeconfig.map_err(ConnectError::Unusable)?;
    choose(&mut kubeconfig, context, &origin)?;
    let fingerprint = Fingerprint::of_kubeconfig(&kubeconfig);
    Ok((resolve(kubeconfig, broken).await?, fingerprint))
}

async fn from_usual_places(context: Option<&str>) -> Result<(Config, Fingerprint), ConnectError> {
    let none = |reason| {
        format!(
            "no kubeconfig given, and none found: {reason}: run in a Pod with a service account, set KUBECONFIG, or name a \
             kubeconfig file (--management-kubeconfig)"
        )
    };
    let kubeconfig = Kubeconfig::read().map_err(|error| ConnectError::Unusable(none(kubeconfig_reason(&error))));
    let mut kubeconfig = kubeconfig?;
    choose(&mut kubeconfig, context, USUAL_PLACES)?;
    let fingerprint = Fingerprint::of_kubeconfig(&kubeconfig);
    Ok((resolve(kubeconfig, none).await?, fingerprint))
}

/// Makes a context the current one, if one is named.
fn choose(kubeconfig: &mut Kubeconfig, context: Option<&str>, origin: &str) -> Result<(), ConnectError> {
    let Some(name) = context else { return Ok(()) };
    if kubeconfig.contexts.iter().all(|context| context.name != name) {
        let known: Vec<_> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(ConnectError::Unusable(format!(
            "{origin}: it has no context {name:?}: name another by --context; there are: {known}"
        )));
    }
    kubeconfig.current_context = Some(name.to_owned());
    Ok(())
}

/// Reads the service account's configuration. Its fingerprint leaves out the token, which kube reads again by itself.
fn in_cluster() -> Result<(Config, Fingerprint), ConnectError> {
    let config = Config::incluster().map_err(|error| {
        ConnectError::Unusable(format!(
            "in-cluster configuration: {}: mount the service account's token (automountServiceAccountToken), or name a \
             kubeconfig file",
            chain(&error)
        ))
    })?;
    let fingerprint = Fingerprint::of(&(&config.root_cert, config.cluster_url.to_string()));
    Ok((config, fingerprint))
}

fn is_in_pod() -> bool {
    ["KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"].iter().all(|name| env::var_os(name).is_some())
        && Path::new(SERVICE_ACCOUNT_TOKEN).exists()
}

/// Resolves the current context, with the proxy that the kubeconfig itself names. kube would also use the environment's
/// proxy and ignore `NO_PROXY`, so [`Proxies`] handles that proxy instead.
async fn resolve(kubeconfig: Kubeconfig, broken: impl FnOnce(String) -> String) -> Result<Config, ConnectError> {
    let own = own_proxy(&kubeconfig);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| ConnectError::Unusable(broken(kubeconfig_reason(&error))))?;
    config.proxy_url = config.proxy_url.filter(|_| own);
    Ok(config)
}

fn own_proxy(kubeconfig: &Kubeconfig) -> bool {
    let context = kubeconfig.contexts.iter().find(|context| Some(&context.name) == kubeconfig.current_context.as_ref());
    let cluster = context.and_then(|context| context.context.as_ref()).map(|context| &context.cluster);
    kubeconfig
        .clusters
        .iter()
        .filter(|named| Some(&named.name) == cluster)
        .filter_map(|named| named.cluster.as_ref()?.proxy_url.as_ref())
        .any(|proxy| !proxy.is_empty())
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "kubeconfig file {}", path.display()),
            Self::InCluster => f.write_str("in-cluster configuration"),
            Self::Default if is_in_pod() => f.write_str("in-cluster configuration"),
            Self::Default => f.write_str(USUAL_PLACES),
            Self::Context { file: Some(path), name } => {
                write!(f, "context {name} of kubeconfig file {}", path.display())
            }
            Self::Context { file: None, name } => write!(f, "context {name} of {USUAL_PLACES}"),
        }
    }
}

impl fmt::Display for WorkloadSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Management => f.write_str("the management cluster itself"),
            Self::Own(source) => source.fmt(f),
            Self::Secret(secret) => secret.fmt(f),
            Self::None => f.write_str("none"),
            Self::Made(cluster, _) => write!(f, "clients made for {cluster}"),
        }
    }
}

/// The credentials by which the Nodes of each Cluster are read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeAccess {
    /// A Secret of the Cluster's namespace.
    Secret(SecretName),
    /// None: no Nodes are read.
    None,
    /// Clients that are made without a configuration, as on the network of a simulation.
    Made(ClientMaker),
}

impl Default for NodeAccess {
    fn default() -> Self {
        Self::Secret(SecretName::default())
    }
}

impl FromStr for NodeAccess {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<Self, SecretNameError> {
        if text == "none" { Ok(Self::None) } else { text.parse().map(Self::Secret) }
    }
}

impl NodeAccess {
    /// Returns the source of the clients of a Cluster's workload cluster.
    pub fn of(&self, cluster: &ClusterRef) -> WorkloadSource {
        match self {
            Self::Secret(name) => WorkloadSource::Secret(name.of(cluster)),
            Self::None => WorkloadSource::None,
            Self::Made(maker) => WorkloadSource::Made(cluster.clone(), maker.clone()),
        }
    }
}

/// A maker of the clients of each Cluster's workload cluster.
#[derive(Clone)]
pub struct ClientMaker(Arc<dyn Fn(&ClusterRef) -> Clients + Send + Sync>);

impl ClientMaker {
    /// Returns a maker that calls a function.
    pub fn new(make: impl Fn(&ClusterRef) -> Clients + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(super) fn make(&self, cluster: &ClusterRef) -> Clients {
        (self.0)(cluster)
    }
}

impl fmt::Debug for ClientMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientMaker")
    }
}

/// A maker is equal to its clones.
impl PartialEq for ClientMaker {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClientMaker {}
