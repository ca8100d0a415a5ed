//! A real API server with its etcd, on free loopback ports and with a directory of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use kube::{
    Client, Config,
    client::ConfigExt,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    crds::{self, Installed},
    go::Components,
    objects::{Contract, Objects},
    process::{Process, free_port},
    proxy::Proxy,
    users::{self, User},
    wait::eventually,
};

/// The maximum time until an API server is ready on a busy machine.
const START: Duration = Duration::from_secs(120);

/// A running API server that serves one version of Cluster API's contract. Dropping it ends its processes.
pub struct ControlPlane {
    /// The version that it serves.
    pub contract: Contract,
    client: Client,
    authority: String,
    // Dropped before the directory that they write to.
    api_server: Mutex<Option<Process>>,
    _etcd: Process,
    settings: Settings,
    scenarios: AtomicUsize,
}

/// The settings that outlive a restart of the API server.
struct Settings {
    components: Arc<Components>,
    etcd: String,
    port: u16,
    directory: TempDir,
    new_nodes: NewNodes,
    lists: Lists,
}

/// The requests by which an API server serves lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lists {
    /// Also as watches, for users with the right to watch.
    Streamed,
    /// By list requests only, as on older servers.
    Paged,
}

/// The API server's changes to a new Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NewNodes {
    /// None.
    AsWritten,
    /// The not-ready taint is added, and must be removed by another component.
    Tainted,
}

impl ControlPlane {
    /// Starts both servers and waits until Cluster API's kinds are served. Nodes are stored as they are written.
    pub async fn start(components: Arc<Components>, contract: Contract, installed: Installed) -> Result<Self> {
        Self::start_with(components, contract, installed, NewNodes::AsWritten, Lists::Streamed).await
    }

    /// Starts a server that doesn't stream lists: readers need the right to list.
    pub async fn start_without_streamed_lists(
        components: Arc<Components>,
        contract: Contract,
        installed: Installed,
    ) -> Result<Self> {
        Self::start_with(components, contract, installed, NewNodes::AsWritten, Lists::Paged).await
    }

    /// Starts both servers of a workload cluster: Cluster API isn't installed, and new Nodes are tainted as usual.
    pub(crate) async fn start_workload(components: Arc<Components>) -> Result<Self> {
        let (contract, lists) = (Contract::V1Beta2, Lists::Streamed);
        Self::start_with(components, contract, Installed::Nothing, NewNodes::Tainted, lists).await
    }

    /// Starts the servers of another workload cluster, with the same components.
    pub async fn another_workload(&self) -> Result<Self> {
        Self::start_workload(Arc::clone(&self.settings.components)).await
    }

    async fn start_with(
        components: Arc<Components>,
        contract: Contract,
        installed: Installed,
        new_nodes: NewNodes,
        lists: Lists,
    ) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("capi-e2e-").tempdir()?;
        let (etcd, address) = start_etcd(&components.etcd, directory.path())?;
        let settings = Settings { components, etcd: address, port: free_port()?, directory, new_nodes, lists };
        settings.write_files()?;
        let mut api_server = settings.start_api_server()?;
        let authority = settings.authority(&mut api_server).await?;
        let client = administrator(&settings.address(), &authority).await?;
        let plane = Self {
            contract,
            client,
            authority,
            api_server: Mutex::new(Some(api_server)),
            _etcd: etcd,
            settings,
            scenarios: AtomicUsize::new(0),
        };
        plane.ready().await?;
        let objects = plane.objects("default");
        for rule in users::rules(contract)? {
            objects.create(rule).await?;
        }
        let bases = plane.settings.components.crds();
        crds::install(&objects, &bases, contract, installed).await?;
        Ok(plane)
    }

    /// Returns access to the objects of a namespace as administrator.
    pub fn objects(&self, namespace: &str) -> Objects {
        Objects::new(self.client.clone(), self.contract, namespace)
    }

    /// Returns a kubeconfig for a user of this API server.
    pub fn kubeconfig(&self, user: &User) -> Value {
        user.kubeconfig(&self.settings.address(), &self.authority)
    }

    /// Returns a client that acts as a user of this API server.
    pub async fn client(&self, user: &User) -> Result<Client> {
        client(user, &self.settings.address(), &self.authority).await
    }

    /// Starts a proxy to this API server that can delay watches.
    pub async fn proxy(&self) -> Result<Proxy> {
        let config = config(&User::administrator(), &self.settings.address(), &self.authority).await?;
        // Credentials aren't needed here: each request carries its own.
        Proxy::start(self.settings.port, Some(config.rustls_client_config()?), None).await
    }

    /// The same for one user, with its token: clients in Go send none by plain HTTP.
    pub async fn proxy_of(&self, user: &User) -> Result<Proxy> {
        let config = config(user, &self.settings.address(), &self.authority).await?;
        Proxy::start(self.settings.port, Some(config.rustls_client_config()?), Some(user.token())).await
    }

    /// Returns a kubeconfig for a user that goes through a proxy.
    pub fn kubeconfig_through(&self, proxy: &Proxy, user: &User) -> Value {
        user.kubeconfig(&proxy.server(), &self.authority)
    }

    /// Returns the directory in which scenarios keep their files.
    pub fn directory(&self) -> &Path {
        self.settings.directory.path()
    }

    /// Returns an administrator's client that retries nothing, so that each answer is visible.
    pub async fn plain_client(&self) -> Result<Client> {
        let mut config = config(&User::administrator(), &self.settings.address(), &self.authority).await?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// The same as [`Self::plain_client`], through a proxy.
    pub(crate) async fn plain_client_through(&self, proxy: &Proxy) -> Result<Client> {
        let mut config = config(&User::administrator(), &proxy.server(), &self.authority).await?;
        config.default_retry = false;
        Ok(Client::try_from(config)?)
    }

    /// Returns the API server's port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.settings.port
    }

    /// Returns the URL of its etcd.
    pub fn etcd(&self) -> &str {
        &self.settings.etcd
    }

    /// Returns the number of a new scenario.
    pub(crate) fn next_scenario(&self) -> usize {
        self.scenarios.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the audit log of requests by users other than the administrator.
    pub fn audit_log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.settings.audit_log())?)
    }

    /// Returns all requests of a user by the audit log, in the order of their answers.
    pub fn answered(&self, user: &User) -> Result<Vec<Answered>> {
        let log = self.audit_log()?;
        // The last line may be partly written.
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let theirs = lines.filter(|line| line["user"]["username"] == *user.name && line["stage"] == "ResponseComplete");
        Ok(theirs.map(|line| Answered::of(&line)).collect())
    }

    /// Kills the API server and cuts its connections. Its data stays in etcd.
    pub fn stop_api_server(&self) {
        drop(self.api_server().take());
    }

    /// Starts the API server again, on the same port and with the same data, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<()> {
        let started = self.settings.start_api_server()?;
        *self.api_server() = Some(started);
        self.ready().await
    }

    fn api_server(&self) -> MutexGuard<'_, Option<Process>> {
        self.api_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn ready(&self) -> Result<()> {
        eventually("API server ready", START, async || {
            if let Some(process) = self.api_server().as_mut() {
                process.still_running()?;
            }
            let request = http_get("/readyz")?;
            self.client.request_text(request).await?;
            Ok(())
        })
        .await
    }
}

/// A request in the audit log that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The verb, such as `patch`.
    pub verb: String,
    /// The name of the object, or empty if there is none.
    pub name: String,
    /// The status code of the answer.
    pub code: u64,
}

impl Answered {
    fn of(line: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            verb: text(&line["verb"]),
            name: text(&line["objectRef"]["name"]),
            code: line["responseStatus"]["code"].as_u64().unwrap_or_default(),
        }
    }
}

/// Builds a GET request for kube's client, which adds the server's address.
pub(crate) fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

impl Settings {
    fn address(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn audit_log(&self) -> PathBuf {
        self.path("audit.log")
    }

    fn write_files(&self) -> Result<()> {
        let key = rcgen::KeyPair::generate()?;
        fs::write(self.path("service-accounts.key"), key.serialize_pem())?;
        fs::write(self.path("service-accounts.pub"), key.public_key_pem())?;
        fs::write(self.path("tokens.csv"), users::token_file())?;
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [
                { "level": "None", "users": ["administrator"] },
                { "level": "None", "userGroups": ["system:masters"] },
                { "level": "Metadata", "userGroups": ["system:authenticated"] },
                { "level": "None" },
            ],
        });
        fs::write(self.path("audit-policy.yaml"), policy.to_string())?;
        Ok(())
    }

    fn start_api_server(&self) -> Result<Process> {
        let mut command = Command::new(&self.components.kube_apiserver);
        let mut flag = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
            command.arg(format!("--{name}")).arg(value);
        };
        flag("etcd-servers", &self.etcd);
        flag("bind-address", &"127.0.0.1");
        flag("advertise-address", &"127.0.0.1");
        flag("secure-port", &self.port.to_string());
        flag("cert-dir", &self.path("certificates"));
        flag("token-auth-file", &self.path("tokens.csv"));
        flag("authorization-mode", &"RBAC");
        flag("service-account-issuer", &"https://kubernetes.default.svc");
        flag("service-account-key-file", &self.path("service-accounts.pub"));
        flag("service-account-signing-key-file", &self.path("service-accounts.key"));
        flag("service-cluster-ip-range", &"10.96.0.0/16");
        flag("audit-policy-file", &self.path("audit-policy.yaml"));
        flag("audit-log-path", &self.audit_log());
        // No controller creates service accounts.
        let disabled = match self.new_nodes {
            NewNodes::AsWritten => "ServiceAccount,TaintNodesByCondition",
            NewNodes::Tainted => "ServiceAccount",
        };
        flag("disable-admission-plugins", &disabled);
        if self.lists == Lists::Paged {
            flag("feature-gates", &"WatchList=false");
        }
        command.args(["--endpoint-reconciler-type=none", "--profiling=false"]);
        Process::start("kube-apiserver", command, &self.path("kube-apiserver.log"))
    }

    /// Returns the certificate that the API server creates at its first start, with its authority.
    async fn authority(&self, api_server: &mut Process) -> Result<String> {
        let path = self.path("certificates/apiserver.crt");
        eventually("API server's certificate", START, async || {
            api_server.still_running()?;
            let text = fs::read_to_string(&path).context("reading the certificate")?;
            let whole = text.trim_end().ends_with("-----END CERTIFICATE-----");
            whole.then_some(text).context("the certificate is half written")
        })
        .await
    }
}

fn start_etcd(binary: &Path, directory: &Path) -> Result<(Process, String)> {
    let clients = format!("http://127.0.0.1:{}", free_port()?);
    let peers = format!("http://127.0.0.1:{}", free_port()?);
    let mut command = Command::new(binary);
    command
        .arg("--data-dir")
        .arg(directory.join("etcd"))
        .args(["--listen-client-urls", &clients])
        .args(["--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers])
        .args(["--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("default={peers}")])
        .args(["--log-level", "warn", "--unsafe-no-fsync"]);
    let process = Process::start("etcd", command, &directory.join("etcd.log"))?;
    Ok((process, clients))
}

async fn administrator(server: &str, authority: &str) -> Result<Client> {
    client(&User::administrator(), server, authority).await
}

async fn client(user: &User, server: &str, authority: &str) -> Result<Client> {
    Ok(Client::try_from(config(user, server, authority).await?)?)
}

async fn config(user: &User, server: &str, authority: &str) -> Result<Config> {
    let kubeconfig: Kubeconfig = serde_json::from_value(user.kubeconfig(server, authority))?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.connect_timeout = Some(Duration::from_secs(10));
    // An API server gives up a request after 34 seconds, and says why.
    config.read_timeout = Some(Duration::from_secs(40));
    Ok(config)
}
