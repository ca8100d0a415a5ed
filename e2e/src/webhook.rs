//! A validating webhook that denies every request with a given message.
//!
//! It answers one request per connection over HTTP/1.1, which is enough for an API server.

use std::{fs, net::Ipv4Addr, sync::Arc};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

use crate::{authority::Authority, users::base64};

/// A webhook on a port of its own. Dropping it ends it.
#[derive(Debug)]
pub struct Webhook {
    port: u16,
    authority: String,
    accepting: JoinHandle<()>,
}

impl Webhook {
    /// Listens, and denies with this message.
    pub async fn start(words: &'static str) -> Result<Self> {
        let authority = Authority::new()?;
        let tls = TlsAcceptor::from(Arc::new(server_config(&authority)?));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(deny(tls.clone(), client, words));
            }
        });
        Ok(Self { port, authority: authority.certificate().to_owned(), accepting })
    }

    /// Returns the `clientConfig` by which an API server reaches it.
    pub fn client_config(&self) -> Value {
        json!({ "url": format!("https://127.0.0.1:{}/", self.port), "caBundle": base64(self.authority.as_bytes()) })
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn server_config(authority: &Authority) -> Result<ServerConfig> {
    let directory = TempDir::new()?;
    authority.write_server_certificate(Ipv4Addr::LOCALHOST.into(), directory.path())?;
    let read = |name| fs::read(directory.path().join(name));
    let certificate = CertificateDer::from_pem_slice(&read("tls.crt")?)?;
    let key = PrivateKeyDer::from_pem_slice(&read("tls.key")?)?;
    Ok(ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key)?)
}

async fn deny(tls: TlsAcceptor, client: TcpStream, words: &str) -> Result<()> {
    let mut client = tls.accept(client).await?;
    let review = read_body(&mut client).await?;
    let answer = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": { "uid": review["request"]["uid"], "allowed": false, "status": { "message": words } },
    });
    let body = answer.to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n";
    client.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    client.shutdown().await?;
    Ok(())
}

/// Reads a request up to the end of its JSON.
async fn read_body(client: &mut (impl AsyncRead + Unpin)) -> Result<Value> {
    let mut request = Vec::new();
    loop {
        ensure!(client.read_buf(&mut request).await? > 0, "the request ends before its body does");
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:").map(str::to_owned));
        let length: usize = length.context("a request without a length")?.trim().parse()?;
        if body.len() >= length {
            return Ok(serde_json::from_str(body)?);
        }
    }
}
