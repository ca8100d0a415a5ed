//! Errors of connecting, and the texts of failed requests and of broken connections, for cluster admins. Each message
//! names the object, the cause and the remedy, and must never contain content of a kubeconfig: the YAML parser's messages
//! quote the faulty line, so only their position is kept. kube's own text of a connection error stops at "client error
//! (Connect)", and those of the TLS library speak to its users, and link its manual.

use std::{error::Error, fmt::Write as _, io, path::PathBuf};

use hyper_util::client::legacy;
use kube::config::KubeconfigError;
use rustls::{AlertDescription, CertificateError, InvalidMessage};
use tower::BoxError;

use super::{SecretRef, WrongProxy};

/// The reason why a client can't connect to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A kubeconfig file that can't be opened.
    #[error("kubeconfig file {}: can't read it: {error}: give the path of a file that this program may read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// A kubeconfig file that can't be used.
    #[error("kubeconfig file {}: {reason}: try it with kubectl --kubeconfig", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Its defect.
        reason: String,
    },
    /// A kubeconfig without the context that was named.
    #[error("{origin}: it has no context {name:?}: name another by --context; there are: {known}")]
    NoContext {
        /// Where the kubeconfig comes from.
        origin: String,
        /// The context.
        name: String,
        /// The contexts that there are.
        known: String,
    },
    /// This program runs in no Pod and has no kubeconfig.
    #[error(
        "no kubeconfig given, and none found: {reason}: run in a Pod with a service account, set KUBECONFIG, or name a \
         kubeconfig file (--management-kubeconfig)"
    )]
    NoDefault {
        /// The reason why the default locations have no kubeconfig.
        reason: String,
    },
    /// The service account of the Pod can't be used.
    #[error(
        "in-cluster configuration: {reason}: mount the service account's token (automountServiceAccountToken), or name a \
         kubeconfig file"
    )]
    InCluster {
        /// The missing part.
        reason: String,
    },
    /// A proxy that can't be used.
    #[error("{origin}: {error}")]
    Proxy {
        /// Where the kubeconfig comes from.
        origin: String,
        /// The proxy's variable and the defect.
        error: WrongProxy,
    },
    /// Key, certificates or credentials that no client can be built from.
    #[error("{origin}: can't build a client from it: {reason}: check its certificates, key and credentials")]
    Client {
        /// Where the kubeconfig comes from.
        origin: String,
        /// The defect.
        reason: String,
    },
    /// There is no workload cluster, on purpose.
    #[error("no Nodes are read, by --workload-nodes=none")]
    NoNodes,
    /// The Secret doesn't exist.
    #[error(
        "{secret}: not found: check the Cluster's namespace and name, and that its control plane is provisioned, or \
         name a kubeconfig file for the workload cluster"
    )]
    SecretMissing {
        /// The Secret.
        secret: SecretRef,
    },
    /// The Secret may not be read.
    #[error("{secret}: reading it is forbidden: {reason}: grant this program's user the verb get on this Secret")]
    SecretForbidden {
        /// The Secret.
        secret: SecretRef,
        /// The API server's message.
        reason: String,
    },
    /// The Secret couldn't be read for another reason.
    #[error("{secret}: can't read it: {}", cause(error))]
    SecretUnreadable {
        /// The Secret.
        secret: SecretRef,
        /// The request's error.
        error: Box<kube::Error>,
    },
    /// The Secret has no key `value`.
    #[error("{secret}: has no key \"value\": Cluster API keeps the kubeconfig there; check who wrote the Secret")]
    SecretWithoutValue {
        /// The Secret.
        secret: SecretRef,
    },
    /// The content of the Secret can't be used.
    #[error("{secret}: its kubeconfig can't be used: {reason}")]
    SecretInvalid {
        /// The Secret.
        secret: SecretRef,
        /// Its defect.
        reason: String,
    },
    /// The Secret sets a field that a Secret may not set.
    #[error(
        "{secret}: its kubeconfig sets {field}, {why}: {remedy}, or name a kubeconfig file of your own for the workload \
         cluster"
    )]
    SecretRefused {
        /// The Secret.
        secret: SecretRef,
        /// The path of the field in the kubeconfig, without its value.
        field: String,
        /// The effect that the field would have.
        why: &'static str,
        /// The setting to use instead.
        remedy: &'static str,
    },
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
#[must_use]
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
