//! Builds a TLS configuration from files, and shows what they hold. All files are read before any is checked, and their
//! content is kept with the result. Only a change of content counts as a change, not one of times or links. Keys are only
//! checked, and must never be shown.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use jiff::Timestamp;
use rustls::{
    RootCertStore, ServerConfig,
    client::verify_server_name,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
    server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier, danger::ClientCertVerifier},
    version::{TLS12, TLS13},
};
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer, X509Certificate},
};

use super::{
    ClientFiles, TlsError, TlsFiles,
    names::{NamedClients, shown},
};
use rules::text::visible;

/// The protocol for ALPN: gRPC uses HTTP/2.
const ALPN: &[u8] = b"h2";

/// The contents of the files.
#[derive(Clone, Eq, PartialEq)]
pub(super) struct Contents {
    pub(super) certificate: Vec<u8>,
    key: Vec<u8>,
    /// The contents of each file of client authorities.
    pub(super) clients: Vec<Vec<u8>>,
}

/// A configuration for new connections.
pub(super) struct Loaded {
    pub(super) config: Arc<ServerConfig>,
    /// The expiry of the server's certificate.
    pub(super) server_until: Timestamp,
    /// The latest expiry of the client authorities.
    pub(super) clients_until: Option<Timestamp>,
}

/// Reads all files.
pub(super) fn read(files: &TlsFiles) -> Result<Contents, TlsError> {
    let read = |path: &PathBuf| fs::read(path).map_err(|error| TlsError::Unreadable { path: path.clone(), error });
    Ok(Contents {
        certificate: read(&files.certificate)?,
        key: read(&files.key)?,
        clients: match &files.clients {
            ClientFiles::Any => Vec::new(),
            ClientFiles::Authority { files, .. } => files.iter().map(read).collect::<Result<_, _>>()?,
        },
    })
}

/// Reads all files twice. Returns `None` if they changed in between: a directory link that is swapped between two files
/// would mix old and new content.
pub(super) fn read_unmixed(files: &TlsFiles) -> Result<Option<Contents>, TlsError> {
    let contents = read(files)?;
    Ok((read(files)? == contents).then_some(contents))
}

/// Builds a configuration from the contents of the files.
pub(super) fn load(files: &TlsFiles, contents: &Contents, now: Timestamp) -> Result<Loaded, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let chain = certificates(&files.certificate, &contents.certificate)?;
    let server_until = valid_until(&files.certificate, &chain[0], now)?;
    let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|_| TlsError::Content {
        path: files.key.clone(),
        reason: "it holds no private key in PEM (PKCS #8, PKCS #1 or SEC 1): give the key of the certificate",
    })?;
    let (verifier, clients_until) = match &files.clients {
        ClientFiles::Authority { files, allowed } => {
            let mut authorities = Vec::new();
            for (file, pem) in files.iter().zip(&contents.clients) {
                authorities.extend(certificates(file, pem)?.into_iter().map(|authority| (file.as_path(), authority)));
            }
            let until = latest(&authorities, now)?;
            let inner = verifier(authorities, &provider)?;
            let allowed = allowed.clone();
            (Arc::new(NamedClients { inner, allowed }) as Arc<dyn ClientCertVerifier>, Some(until))
        }
        ClientFiles::Any => (WebPkiClientVerifier::no_client_auth(), None),
    };
    let pair = |error: rustls::Error| TlsError::Pair {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        reason: error.to_string(),
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(pair)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(pair)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session isn't verified again, even if its certificate has expired or its authority is gone.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Loaded { config: Arc::new(config), server_until, clients_until })
}

/// Parses the certificates of a PEM file, which must have at least one.
fn certificates(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let broken = |reason| TlsError::Content { path: path.to_owned(), reason };
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| broken("it isn't PEM: give a file with -----BEGIN CERTIFICATE----- blocks"))?;
    if certificates.is_empty() {
        return Err(broken("it holds no certificate: give a file with -----BEGIN CERTIFICATE----- blocks"));
    }
    Ok(certificates)
}

/// A certificate and its file.
type InFile<'a> = (&'a Path, CertificateDer<'static>);

/// Builds the verifier of client certificates. There has to be an authority.
fn verifier(
    authorities: Vec<InFile<'_>>,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let wrong = |path: &Path, reason: String| TlsError::Certificate { path: path.to_owned(), reason };
    let first = authorities.first().map_or(Path::new(""), |(path, _)| path);
    let mut roots = RootCertStore::empty();
    for (path, authority) in authorities {
        roots.add(authority).map_err(|error| wrong(path, error.to_string()))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
        .build()
        .map_err(|error| wrong(first, error.to_string()))
}

/// Returns the start and the end of a certificate's validity.
fn validity(path: &Path, certificate: &CertificateDer<'_>) -> Result<(Timestamp, Timestamp), TlsError> {
    let wrong = |reason: String| TlsError::Certificate { path: path.to_owned(), reason };
    let (_, certificate) = X509Certificate::from_der(certificate).map_err(|error| wrong(error.to_string()))?;
    let validity = certificate.validity();
    let moment = |seconds| Timestamp::from_second(seconds).map_err(|error| wrong(error.to_string()));
    Ok((moment(validity.not_before.timestamp())?, moment(validity.not_after.timestamp())?))
}

/// Returns the expiry of a certificate that is valid now.
fn valid_until(path: &Path, certificate: &CertificateDer<'_>, now: Timestamp) -> Result<Timestamp, TlsError> {
    let (from, until) = validity(path, certificate)?;
    if (from..=until).contains(&now) {
        return Ok(until);
    }
    Err(TlsError::Dates { path: path.to_owned(), from, until })
}

/// Returns the latest expiry of the authorities. An expired authority beside a valid one is no error: bundles keep old
/// authorities for a while.
fn latest(authorities: &[InFile<'_>], now: Timestamp) -> Result<Timestamp, TlsError> {
    let until = |(path, authority): &InFile<'_>| valid_until(path, authority, now);
    let mut latest = until(&authorities[0]);
    for authority in &authorities[1..] {
        latest = match (latest, until(authority)) {
            (Ok(one), Ok(other)) => Ok(one.max(other)),
            (Ok(one), Err(_)) => Ok(one),
            (Err(_), other) => other,
        };
    }
    latest
}

/// The content of the files.
#[derive(Debug)]
pub struct Inspection {
    /// The chain that is served, the server's own certificate first.
    pub server: Vec<CertificateFacts>,
    /// The authorities whose clients are accepted.
    pub clients: Vec<CertificateFacts>,
}

/// The facts of a certificate. Texts are safe for terminals.
#[derive(Clone, Debug)]
pub struct CertificateFacts {
    /// The name of its subject.
    pub subject: String,
    /// The name of its issuer.
    pub issuer: String,
    /// The start of its validity.
    pub from: Timestamp,
    /// The end of its validity.
    pub until: Timestamp,
    /// Its subject alternative names.
    pub names: Vec<String>,
    /// True if a client accepts it for a server: it has no extended key usage, or one that allows it.
    pub may_serve: bool,
    /// True if it is a certificate of an authority.
    pub is_authority: bool,
    der: CertificateDer<'static>,
}

impl CertificateFacts {
    /// Returns true if a client that connects to this host, a DNS name or an IP address, accepts it.
    pub fn is_for(&self, host: &str) -> bool {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let Ok(name) = ServerName::try_from(host) else { return false };
        ParsedCertificate::try_from(&self.der).is_ok_and(|certificate| verify_server_name(&certificate, &name).is_ok())
    }
}

/// Loads the files as a server does, and returns their content.
///
/// # Errors
/// If a server couldn't be started with them.
pub fn inspect(files: &TlsFiles, now: Timestamp) -> Result<Inspection, TlsError> {
    let contents = read(files)?;
    load(files, &contents, now)?;
    let facts = |path: &Path, pem: &[u8]| -> Result<Vec<_>, TlsError> {
        certificates(path, pem)?.iter().map(|der| facts(path, der)).collect()
    };
    Ok(Inspection {
        server: facts(&files.certificate, &contents.certificate)?,
        clients: match &files.clients {
            ClientFiles::Authority { files, .. } => {
                let each = files.iter().zip(&contents.clients).map(|(file, pem)| facts(file, pem));
                each.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect()
            }
            ClientFiles::Any => Vec::new(),
        },
    })
}

fn facts(path: &Path, der: &CertificateDer<'static>) -> Result<CertificateFacts, TlsError> {
    let (from, until) = validity(path, der)?;
    let wrong = |reason: String| TlsError::Certificate { path: path.to_owned(), reason };
    let (_, certificate) = X509Certificate::from_der(der).map_err(|error| wrong(error.to_string()))?;
    let names = certificate.subject_alternative_name().map_err(|error| wrong(error.to_string()))?;
    let names = names.map(|names| names.value.general_names.iter().map(name).collect()).unwrap_or_default();
    let usage = certificate.extended_key_usage().map_err(|error| wrong(error.to_string()))?;
    Ok(CertificateFacts {
        subject: visible(&certificate.subject().to_string()).into_owned(),
        issuer: visible(&certificate.issuer().to_string()).into_owned(),
        from,
        until,
        names,
        may_serve: usage.is_none_or(|usage| usage.value.server_auth || usage.value.any),
        is_authority: certificate.is_ca(),
        der: der.clone(),
    })
}

/// Formats a name; an IP address in its usual notation.
fn name(name: &GeneralName<'_>) -> String {
    match name {
        GeneralName::IPAddress(bytes) => match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
            (Ok(v4), _) => std::net::IpAddr::from(v4).to_string(),
            (_, Ok(v6)) => std::net::IpAddr::from(v6).to_string(),
            (Err(_), Err(_)) => shown(name),
        },
        other => shown(other),
    }
}
