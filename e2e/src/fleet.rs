//! The certificates of a fleet: an authority, the program's own, and those that name the Clusters of autoscalers; and
//! the Service of its replicas.

use std::{collections::BTreeMap, fs, net::Ipv4Addr, path::Path};

use anyhow::Result;
use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType};
use serde_json::{Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

use crate::{
    installed::Connector,
    provider::{Caller, Provider},
    users::base64,
};

/// The host in the program's certificate.
const HOST: &str = "capi-autoscaler-provider";
/// The trust domain of the autoscalers' identities.
pub const TRUST_DOMAIN: &str = "e2e.example";

/// The authority of a fleet's certificates.
pub struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority.
    pub fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { pem, issuer: Issuer::new(params, key) })
    }

    fn issue(&self, names: Vec<SanType>, usage: ExtendedKeyUsagePurpose) -> Result<(String, String)> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.subject_alt_names = names;
        params.extended_key_usages = vec![usage];
        Ok((params.signed_by(&key, &self.issuer)?.pem(), key.serialize_pem()))
    }

    /// Returns a Secret with a certificate for one name, as cert-manager writes it: a host's is of a server, a URI's of a client.
    pub fn secret(&self, secret: &str, name: SanType) -> Result<Value> {
        let is_client = matches!(name, SanType::URI(_));
        let usage = if is_client { ExtendedKeyUsagePurpose::ClientAuth } else { ExtendedKeyUsagePurpose::ServerAuth };
        let (certificate, key) = self.issue(vec![name], usage)?;
        let data = json!({
            "tls.crt": base64(certificate.as_bytes()),
            "tls.key": base64(key.as_bytes()),
            "ca.crt": base64(self.pem.as_bytes()),
        });
        Ok(json!({ "kind": "Secret", "metadata": { "name": secret }, "data": data }))
    }

    /// Writes the program's certificate to a directory, and returns the flags of a fleet of the Clusters with a label.
    pub fn flags(&self, directory: &Path, label: &str) -> Result<Vec<String>> {
        let names = vec![SanType::DnsName(HOST.try_into()?), SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
        let (certificate, key) = self.issue(names, ExtendedKeyUsagePurpose::ServerAuth)?;
        let mut flags = vec![format!("--fleet-selector={label}"), format!("--fleet-trust-domain={TRUST_DOMAIN}")];
        for (flag, content) in [("cert", &certificate), ("key", &key), ("client-ca", &self.pem)] {
            let file = directory.join(format!("fleet-{flag}.pem"));
            fs::write(&file, content)?;
            flags.push(format!("--tls-{flag}-file={}", file.display()));
        }
        Ok(flags)
    }

    /// Returns a connection to a provider by the certificate that names a Cluster.
    pub fn caller(&self, provider: &Provider, namespace: &str, cluster: &str) -> Result<Caller> {
        self.caller_at(provider.port(), namespace, cluster)
    }

    /// Returns a connection to a port of this machine by the certificate that names a Cluster.
    pub fn caller_at(&self, port: u16, namespace: &str, cluster: &str) -> Result<Caller> {
        let (certificate, key) = self.certify(namespace, cluster)?;
        let files = [("ca.crt", &self.pem), ("tls.crt", &certificate), ("tls.key", &key)];
        let files: BTreeMap<_, _> =
            files.into_iter().map(|(name, pem)| (name.to_owned(), ByteString(pem.clone().into_bytes()))).collect();
        // The port is that of the provider.
        let config = json!({ "address": format!("{HOST}:0"), "cacert": "ca.crt", "cert": "tls.crt", "key": "tls.key" });
        let connector = Connector::new(&config, &files)?;
        Ok(Caller::by(connector.channel_to(&format!("127.0.0.1:{port}"))))
    }

    /// Writes the certificate that names a Cluster to a directory, and returns the content of the file for Cluster
    /// Autoscaler's `--cloud-config`.
    pub fn cloud_config(&self, directory: &Path, port: u16, namespace: &str, cluster: &str) -> Result<Value> {
        let (certificate, key) = self.certify(namespace, cluster)?;
        let mut config = json!({ "address": format!("127.0.0.1:{port}") });
        for (field, content) in [("cacert", &self.pem), ("cert", &certificate), ("key", &key)] {
            let file = directory.join(format!("{field}.pem"));
            fs::write(&file, content)?;
            config[field] = json!(file);
        }
        Ok(config)
    }

    /// Returns a certificate that names a Cluster, and its key.
    fn certify(&self, namespace: &str, cluster: &str) -> Result<(String, String)> {
        let uri = format!("spiffe://{TRUST_DOMAIN}/ns/{namespace}/cluster/{cluster}");
        self.issue(vec![SanType::URI(uri.as_str().try_into()?)], ExtendedKeyUsagePurpose::ClientAuth)
    }
}

/// A Service of replicas: it carries each new connection to the first of them that takes it. Dropping it cuts all.
#[derive(Debug)]
pub struct Service {
    port: u16,
    accepting: JoinHandle<()>,
}

impl Service {
    /// Listens on a port of 127.0.0.1.
    pub async fn of(replicas: &[&Provider]) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let replicas: Vec<_> = replicas.iter().map(|replica| replica.port()).collect();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, replicas.clone()));
            }
        });
        Ok(Self { port, accepting })
    }

    /// Returns its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(mut client: TcpStream, replicas: Vec<u16>) {
    for port in replicas {
        if let Ok(mut replica) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
            // Either side may end it at any time.
            let _ = copy_bidirectional(&mut client, &mut replica).await;
            return;
        }
    }
}
