//! Errors of connecting, and the texts of failed requests and of broken connections, for cluster admins. No text may
//! contain content of a kubeconfig: the YAML parser's messages
//! quote the faulty line, so only their position is kept. kube's own text of a connection error stops at "client error
//! (Connect)", and those of the TLS library speak to its users, and link its manual.

use std::{error::Error, fmt::Write as _, io};

use http_body_util::LengthLimitError;
use hyper_util::client::legacy;
use kube::config::KubeconfigError;
use rustls::{AlertDescription, CertificateError, InvalidMessage};
use tower::BoxError;

/// The reason why a client can't connect to a cluster. Its text names the object, the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The request for a Secret failed.
    #[error("{0}")]
    SecretUnreadable(String),
    /// A configuration that there isn't, or that can't be used.
    #[error("{0}")]
    Unusable(String),
}

/// Returns the defect of a kubeconfig, without any of its content.
pub(super) fn kubeconfig_reason(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(parse) => match parse.location() {
            Some(at) => format!("not a kubeconfig in YAML (line {}, column {})", at.line(), at.column()),
            None => "not a kubeconfig in YAML".to_owned(),
        },
        KubeconfigError::CurrentContextNotSet => "it has no current-context".to_owned(),
        KubeconfigError::LoadContext(name) => format!("its current-context {name:?} is not among its contexts"),
        KubeconfigError::LoadClusterOfContext(name) => format!("its cluster {name:?} is not among its clusters"),
        KubeconfigError::MissingClusterUrl => "its cluster has no server".to_owned(),
        other => chain(other),
    }
}

/// The maximum number of characters of an API server's message.
const LONGEST: usize = 4096;

/// Returns the cause of a failed request in one line: an API server's message with its code and reason, or the whole
/// chain of a connection's error.
///
/// The text holds the words of the API server or the operating system, and nothing of a request's credentials.
pub fn cause(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.message.is_empty() => {
            format!("the API server answered {} {}", status.code, status.reason).trim_end().to_owned()
        }
        kube::Error::Api(status) => {
            let message =
                status.message.char_indices().nth(LONGEST).map_or(&*status.message, |(end, _)| &status.message[..end]);
            let mut line = format!("{message} ({}", status.code);
            if !status.reason.is_empty() {
                // Writing to a String can't fail.
                let _ = write!(line, " {}", status.reason);
            }
            line.push(')');
            line
        }
        kube::Error::Service(inner) => chain(inner.as_ref()),
        other => chain(other),
    }
}

/// Joins an error and its sources, without those that repeat earlier text.
pub(super) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let text = source.to_string();
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        next = source.source();
    }
    line
}

/// Returns an error with the address of the server if no connection to it comes about, and its TLS failure in plain words;
/// any other error is returned unchanged.
pub(super) fn of_server(error: BoxError, server: &str) -> BoxError {
    let is_connect = error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect);
    let inner = in_words(error);
    if !is_connect {
        return inner;
    }
    let kind = io_kind(&*inner);
    let text = if kind == io::ErrorKind::ConnectionRefused {
        format!("connection refused by {server}")
    } else {
        let why = chain(&*inner);
        format!("can't connect to {server}: {}", why.strip_prefix(CONNECT).unwrap_or(&why))
    };
    io::Error::new(kind, text).into()
}

/// The HTTP client's own text of a connection that doesn't come about.
const CONNECT: &str = "client error (Connect): ";

/// Returns the kind of the operating system's error.
fn io_kind(error: &(dyn Error + 'static)) -> io::ErrorKind {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(io) = cause.downcast_ref::<io::Error>()
            && io.kind() != io::ErrorKind::Other
        {
            return io.kind();
        }
        next = cause.source();
    }
    io::ErrorKind::Other
}

/// Returns an error with its TLS failure in plain words; any other error is returned unchanged.
pub(super) fn in_words(error: BoxError) -> BoxError {
    match words(&*error) {
        Some((kind, words)) => io::Error::new(kind, words).into(),
        None => error,
    }
}

fn words(error: &(dyn Error + 'static)) -> Option<(io::ErrorKind, String)> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
            return Some((io::ErrorKind::InvalidData, of_tls(tls)));
        }
        if cause.is::<LengthLimitError>() {
            return Some((io::ErrorKind::FileTooLarge, "the answer is too long".to_owned()));
        }
        let io = cause.downcast_ref::<io::Error>();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof) {
            return Some((io::ErrorKind::UnexpectedEof, "the server closed the connection".to_owned()));
        }
        // An `io::Error` reports its inner error's source as its own, which would skip the inner error.
        next = match io.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => cause.source(),
        };
    }
    None
}

fn of_tls(error: &rustls::Error) -> String {
    use AlertDescription as Alert;
    match error {
        rustls::Error::InvalidCertificate(why) => of_certificate(why),
        rustls::Error::NoCertificatesPresented => "the server has no certificate".to_owned(),
        rustls::Error::AlertReceived(
            alert @ (Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::UnknownCA
            | Alert::AccessDenied),
        ) => format!("the server doesn't accept this program's client certificate ({alert:?})"),
        rustls::Error::AlertReceived(alert) => format!("the server ended the TLS handshake ({alert:?})"),
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server doesn't speak TLS on this port".to_owned()
        }
        rustls::Error::PeerIncompatible(why) => format!("the server offers no TLS that this program has ({why:?})"),
        other => format!("TLS failed: {other}"),
    }
}

fn of_certificate(why: &CertificateError) -> String {
    match why {
        // An authority of the same name with another key is that of a cluster which was created anew.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "the server's certificate is signed by an authority that isn't in the kubeconfig".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the server's certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the server's certificate isn't valid yet: compare the clocks".to_owned()
        }
        CertificateError::NotValidForName => "the server's certificate is for another name".to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => {
            format!("the server's certificate isn't for {} but for {}", expected.to_str(), names(presented))
        }
        other => format!("the server's certificate isn't accepted: {other}"),
    }
}

/// Joins names that rustls writes as `DnsName("a")` or `IpAddress(10.0.0.1)`.
fn names(presented: &[String]) -> String {
    let plain = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
        inner.trim_matches('"').to_owned()
    };
    match presented {
        [] => "no name".to_owned(),
        names => names.iter().map(plain).collect::<Vec<_>>().join(", "),
    }
}
