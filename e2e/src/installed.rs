//! A release of the chart on an API server: the effects of a kubelet on its Deployment, as far as the program depends
//! on them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use hyper_util::rt::TokioIo;
use k8s_openapi::{
    ByteString,
    api::{
        apps::v1::Deployment,
        authentication::v1::TokenRequest,
        core::v1::{ConfigMap, KeyToPath, PodSpec, Secret, ServiceAccount},
    },
};
use kube::{Api, Client, api::PostParams};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    },
};
use tonic::transport::{Channel, Endpoint};

use crate::{
    control_plane::ControlPlane,
    helm::RELEASE,
    program::Programs,
    provider::{Caller, Provider},
    users::User,
};

/// The directory of the Pod's files.
const FILES: &str = "/etc/capi-autoscaler-provider";

/// A release in one namespace.
pub struct Installed {
    client: Client,
    namespace: String,
    deployment: Deployment,
}

impl Installed {
    /// Reads its Deployment.
    pub async fn read(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let client = plane.client(&User::administrator()).await?;
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
        let deployment = deployments.get(RELEASE).await.context("reading the Deployment")?;
        Ok(Self { client, namespace: namespace.to_owned(), deployment })
    }

    /// Returns the data of a Secret in the release's namespace.
    pub async fn secret(&self, name: &str) -> Result<BTreeMap<String, ByteString>> {
        self.secret_in(&self.namespace, name).await
    }

    /// Returns the data of a Secret.
    pub async fn secret_in(&self, namespace: &str, name: &str) -> Result<BTreeMap<String, ByteString>> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let secret = secrets.get(name).await.with_context(|| format!("reading Secret {name}"))?;
        secret.data.with_context(|| format!("Secret {name} is empty"))
    }

    /// Returns a kubeconfig with a token of the release's own ServiceAccount.
    pub async fn kubeconfig(&self, plane: &ControlPlane) -> Result<Value> {
        let account = self.pod()?.service_account_name.clone().context("no service account")?;
        kubeconfig_of(plane, &self.namespace, &account).await
    }

    /// Writes the files of the program below `directory`, and reads its flags and cloud config, so that it is started as
    /// the Deployment does: the kubeconfig replaces the Pod's token. It is called as by Cluster Autoscaler, with the
    /// client's certificate.
    pub async fn prepare(&self, directory: &Path, in_cluster: &Value) -> Result<Prepared> {
        self.prepare_for(directory, in_cluster, (&self.namespace, RELEASE)).await
    }

    /// The same for the Cluster Autoscaler of a Cluster of a fleet: `caller` is the namespace and name of the release
    /// of its chart.
    pub async fn prepare_for(&self, directory: &Path, in_cluster: &Value, caller: (&str, &str)) -> Result<Prepared> {
        let kubeconfig = directory.join("in-cluster");
        fs::write(&kubeconfig, in_cluster.to_string())?;
        self.mount_secrets(directory).await?;
        let flags = self.flags(&kubeconfig, directory)?;
        let (namespace, release) = caller;
        let cloud_config = self.cloud_config(namespace, &format!("{release}-cloud-config")).await?;
        let files = self.secret_in(namespace, &format!("{release}-client")).await?;
        let connector = Connector::new(&cloud_config, &files)?;
        Ok(Prepared { kubeconfig, flags, cloud_config, connector })
    }

    fn pod(&self) -> Result<&PodSpec> {
        let spec = self.deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
        spec.context("a Deployment without a Pod")
    }

    /// Writes the files that the Pod mounts from Secrets below its own directory into directories of the same names.
    async fn mount_secrets(&self, directory: &Path) -> Result<()> {
        let container = self.pod()?.containers.first().context("no container")?;
        for mount in container.volume_mounts.iter().flatten() {
            let Some(name) = mount.mount_path.strip_prefix(FILES) else { continue };
            let target = directory.join(name.trim_start_matches('/'));
            let volume = self.pod()?.volumes.iter().flatten().find(|volume| volume.name == mount.name);
            let volume = volume.with_context(|| format!("no volume {}", mount.name))?;
            let mut sources: Vec<(String, Option<Vec<KeyToPath>>)> = Vec::new();
            if let Some(secret) = &volume.secret {
                sources.push((secret.secret_name.clone().context("a volume of no Secret")?, secret.items.clone()));
            }
            for source in volume.projected.iter().filter_map(|projected| projected.sources.as_ref()).flatten() {
                let secret = source.secret.as_ref().context("a source that is no Secret")?;
                sources.push((secret.name.clone(), secret.items.clone()));
            }
            for (secret, items) in sources {
                write_files(&target, &chosen(&self.secret(&secret).await?, items.as_deref())?)?;
            }
        }
        Ok(())
    }

    /// Returns the arguments of the container without those that a test chooses: addresses, and the access to the
    /// management cluster.
    fn flags(&self, kubeconfig: &Path, directory: &Path) -> Result<Vec<String>> {
        let container = self.pod()?.containers.first().context("no container")?;
        let arguments = container.args.clone().context("no arguments")?;
        ensure!(arguments.first().is_some_and(|first| first == "serve"), "not serve: {arguments:?}");
        let chosen_here = ["--listen=", "--http-listen=", "--probe-listen=", "--management-kubeconfig="];
        let flags = arguments.into_iter().skip(1).filter(|flag| !chosen_here.iter().any(|here| flag.starts_with(here)));
        Ok(flags
            .map(|flag| {
                flag.replace(FILES, &directory.display().to_string())
                    .replace("=in-cluster", &format!("={}", kubeconfig.display()))
            })
            .collect())
    }

    /// Returns the file that Cluster Autoscaler gets.
    async fn cloud_config(&self, namespace: &str, name: &str) -> Result<Value> {
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        let map = maps.get(name).await.context("reading the cloud-config")?;
        let data = map.data.unwrap_or_default();
        Ok(serde_yaml::from_str(data.get("cloud-config.yaml").context("no cloud-config.yaml")?)?)
    }
}

/// Returns a kubeconfig with a token of a ServiceAccount.
pub async fn kubeconfig_of(plane: &ControlPlane, namespace: &str, account: &str) -> Result<Value> {
    let client = plane.client(&User::administrator()).await?;
    let service_accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
    let request = TokenRequest::default();
    let answer = service_accounts.create_token_request(account, &PostParams::default(), &request).await?;
    let token = answer.status.context("a token request without an answer")?.token;
    let mut kubeconfig = plane.kubeconfig(&User::administrator());
    kubeconfig["users"][0]["user"]["token"] = json!(token);
    Ok(kubeconfig)
}

/// A release's program, ready to be started any number of times.
pub struct Prepared {
    kubeconfig: PathBuf,
    flags: Vec<String>,
    cloud_config: Value,
    connector: Connector,
}

impl Prepared {
    /// Starts the server with additional flags.
    pub fn serve(&self, programs: &Programs, more: &[&str]) -> Result<Provider> {
        let flags: Vec<&str> = self.flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
        Ok(programs.launch(&self.kubeconfig, &flags, &[])?.called_by(|port| self.connector.channel(port)))
    }

    /// Returns the flags of the program, except those that a test chooses.
    pub fn flags(&self) -> &[String] {
        &self.flags
    }

    /// Calls a server as a Cluster Autoscaler with the files of another client's Secret.
    pub fn call_with(&self, provider: &Provider, files: &BTreeMap<String, ByteString>) -> Result<Caller> {
        let connector = Connector::new(&self.cloud_config, files)?;
        Ok(provider.also_called_by(|port| connector.channel(port)))
    }

    /// Runs `check` with the same flags, and returns its exit code and report. Blocks until the program has ended.
    pub fn check(&self, programs: &Programs, more: &[&str]) -> Result<(Option<i32>, Value)> {
        let flags = ["--listen=127.0.0.1:0"].into_iter().chain(self.flags.iter().map(String::as_str));
        let flags: Vec<&str> = flags.chain(more.iter().copied()).collect();
        programs.report("check", &self.kubeconfig, &flags, &[])
    }
}

/// Returns the keys of a Secret that a volume mounts, by the names of their files: all of them unless it lists some.
fn chosen(data: &BTreeMap<String, ByteString>, items: Option<&[KeyToPath]>) -> Result<BTreeMap<String, ByteString>> {
    let Some(items) = items else { return Ok(data.clone()) };
    let file = |item: &KeyToPath| {
        let bytes = data.get(&item.key).with_context(|| format!("no {} in the Secret", item.key))?;
        Ok((item.path.clone(), bytes.clone()))
    };
    items.iter().map(file).collect()
}

fn write_files(directory: &Path, files: &BTreeMap<String, ByteString>) -> Result<()> {
    fs::create_dir_all(directory)?;
    for (name, bytes) in files {
        fs::write(directory.join(name), &bytes.0)?;
    }
    Ok(())
}

/// Returns a channel as Cluster Autoscaler makes it from its cloud-config: to the address there, by the files that it
/// names.
pub fn channel(cloud_config: &Value) -> Result<Channel> {
    let mut files = BTreeMap::new();
    for key in ["cacert", "cert", "key"] {
        let path = Path::new(cloud_config[key].as_str().with_context(|| format!("no {key} in the cloud-config"))?);
        let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let name = path.file_name().with_context(|| format!("{key} is no file"))?;
        files.insert(name.to_string_lossy().into_owned(), ByteString(bytes));
    }
    let address = cloud_config["address"].as_str().context("no address in the cloud-config")?;
    Ok(Connector::new(cloud_config, &files)?.channel_to(address))
}

/// Cluster Autoscaler's TLS settings: its certificate, the authority of the server, and the host of its address, which
/// it verifies.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: TlsConnector,
    host: ServerName<'static>,
}

impl Connector {
    pub(crate) fn new(cloud_config: &Value, files: &BTreeMap<String, ByteString>) -> Result<Self> {
        let file = |key: &str| {
            let path = PathBuf::from(cloud_config[key].as_str().with_context(|| format!("no {key}"))?);
            let name = path.file_name().and_then(|name| name.to_str()).with_context(|| format!("{key} is no file"))?;
            Ok::<_, anyhow::Error>(files.get(name).with_context(|| format!("no {name} in the Secret"))?.0.as_slice())
        };
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(file("cacert")?)?)?;
        let chain = CertificateDer::pem_slice_iter(file("cert")?).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(file("key")?)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = config.with_root_certificates(roots).with_client_auth_cert(chain, key)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let address = cloud_config["address"].as_str().context("no address")?;
        let (host, _) = address.rsplit_once(':').context("an address without a port")?;
        Ok(Self { tls: TlsConnector::from(Arc::new(config)), host: ServerName::try_from(host.to_owned())? })
    }

    fn channel(&self, port: u16) -> Channel {
        self.channel_to(&format!("127.0.0.1:{port}"))
    }

    /// Returns a channel to an address, whatever host the certificate has.
    pub(crate) fn channel_to(&self, address: &str) -> Channel {
        let (tls, host, address) = (self.tls.clone(), self.host.clone(), address.to_owned());
        Endpoint::from_static("http://server").connect_with_connector_lazy(tower::service_fn(move |_| {
            let (tls, host, address) = (tls.clone(), host.clone(), address.clone());
            async move {
                let stream = TcpStream::connect(address).await?;
                tls.connect(host, stream).await.map(TokioIo::new)
            }
        }))
    }

    /// Connects to an address, and returns the server's certificate.
    pub(crate) async fn certificate(&self, address: &str) -> Result<Vec<u8>> {
        let stream = self.tls.connect(self.host.clone(), TcpStream::connect(address).await?).await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        Ok(shown.context("a server without a certificate")?.to_vec())
    }
}
