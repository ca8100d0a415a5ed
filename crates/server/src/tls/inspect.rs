//! Inspects the TLS files before they are served: each certificate is shown. Keys are only checked, and must never be
//! shown.

use std::path::Path;

use jiff::Timestamp;
use rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, ServerName},
    server::ParsedCertificate,
};
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer, X509Certificate},
};

use super::{
    ClientFiles, TlsError, TlsFiles,
    load::{self, certificates, validity},
    names::shown,
};
use nodegroup::text::visible;

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
    #[must_use]
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
    let contents = load::read(files)?;
    load::load(files, &contents, now)?;
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
