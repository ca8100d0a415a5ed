//! The certificates of a fleet: the program's own, and those that name the Clusters of autoscalers; and the Service of its
//! replicas.

use std::{fs, net::Ipv4Addr, path::Path};

use anyhow::Result;
use k8s_openapi::ByteString;
use rcgen::{ExtendedKeyUsagePurpose, SanType};
use serde_json::{Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

pub use crate::authority::Authority;
use crate::{
    installed::Connector,
    provider::{Caller, Provider},
};

/// The host in the program's certificate.
const HOST: &str = "capi-autoscaler-provider";
/// The trust domain of the autoscalers' identities.
pub const TRUST_DOMAIN: &str = "e2e.example";

impl Authority {
    /// Writes the program's certificate to a directory, and returns the flags of a fleet of the Clusters with a label.
    pub fn flags(&self, directory: &Path, label: &str) -> Result<Vec<String>> {
        let names = vec![SanType::DnsName(HOST.try_into()?), SanType::IpAddress(Ipv4Addr::LOCALHOST.into())];
        let (certificate, key) = self.issue(names, ExtendedKeyUsagePurpose::ServerAuth)?;
        let mut flags = vec![format!("--fleet-selector={label}"), format!("--fleet-trust-domain={TRUST_DOMAIN}")];
        for (flag, content) in
            [("cert", certificate.as_str()), ("key", key.as_str()), ("client-ca", self.certificate())]
        {
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
        let files = [("ca.crt", self.certificate()), ("tls.crt", certificate.as_str()), ("tls.key", key.as_str())];
        let files = files.map(|(name, pem)| (name.to_owned(), ByteString(pem.as_bytes().to_vec()))).into();
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
        for (field, content) in [("cacert", self.certificate()), ("cert", certificate.as_str()), ("key", key.as_str())]
        {
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

/// A Service of replicas: it carries each new connection to the first of them that takes it, and so to another one when
/// the first was killed. Dropping it cuts all.
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
            // Otherwise each call waits for a delayed acknowledgement.
            let _ = (client.set_nodelay(true), replica.set_nodelay(true));
            // Either side may end it at any time.
            let _ = copy_bidirectional(&mut client, &mut replica).await;
            return;
        }
    }
}
