//! Texts of broken connections, for cluster admins: those of the TLS library speak to its users, and link its manual.

use std::{error::Error, io};

use rustls::{AlertDescription, CertificateError, InvalidMessage};
use tower::BoxError;

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
