//! The client names that may connect: after a certificate has been verified, one of its subject alternative names must
//! be allowed. The common name doesn't count, as in every current TLS stack.

use std::{fmt, str::FromStr, sync::Arc};

use arcstr::ArcStr;
use jiff::Timestamp;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use thiserror::Error;
use x509_parser::{
    extensions::{GeneralName, ParsedExtension, X509Extension},
    oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME,
    prelude::{FromDer, X509Certificate},
};

use super::AllowedClients;
use crate::listen::connections::Client;
use rules::text::{shortened, visible};

/// A subject alternative name: a DNS name, or a URI such as a SPIFFE id.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AllowedName {
    /// A DNS name, in lower case.
    Dns(String),
    /// A URI, compared as it is.
    Uri(String),
}

/// The error of a text that isn't such a name.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("it has to be a DNS name without wildcards, such as cluster-autoscaler, or a URI such as spiffe://domain/path")]
pub struct NameError;

impl FromStr for AllowedName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(NameError);
        }
        if let Some((scheme, rest)) = text.split_once("://") {
            return if scheme.is_empty() || rest.is_empty() { Err(NameError) } else { Ok(Self::Uri(text.to_owned())) };
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let is_dns = text.len() <= 253
            && text.split('.').all(|label| (1..=63).contains(&label.len()) && label.bytes().all(allowed));
        if is_dns { Ok(Self::Dns(text.to_ascii_lowercase())) } else { Err(NameError) }
    }
}

impl fmt::Display for AllowedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) | Self::Uri(name) => f.write_str(name),
        }
    }
}

impl AllowedName {
    fn is(&self, name: &GeneralName<'_>) -> bool {
        match (self, name) {
            (Self::Dns(allowed), GeneralName::DNSName(name)) => name.eq_ignore_ascii_case(allowed),
            (Self::Uri(allowed), GeneralName::URI(name)) => name == allowed,
            (Self::Dns(_) | Self::Uri(_), _) => false,
        }
    }
}

/// The reason why a client with a valid certificate isn't allowed.
#[derive(Debug, Error)]
#[error(
    "none of the client certificate's names ({0}) is among --tls-allowed-client-names or --tls-read-only-client-names"
)]
pub(super) struct NotAllowed(String);

/// The maximum length of a client's name in a log, an Event or an answer.
const LONGEST_NAME: usize = 256;

/// The maximum number of a refused certificate's names that a log quotes.
const MOST_QUOTED: usize = 8;

/// The maximum length of a SPIFFE id (SPIFFE-ID, section 2.3).
const LONGEST_URI: usize = 2_048;

/// The maximum number of digits of a serial number that are shown.
const LONGEST_SERIAL: usize = 64;

/// Returns the client that a verified certificate identifies.
pub(crate) fn client_of(certificate: &CertificateDer<'_>, allowed: &AllowedClients) -> Option<Client> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names.as_ref().map_or(&[][..], |extension| &extension.value.general_names);
    let among = |list: &[AllowedName]| names.iter().find(|name| list.iter().any(|allowed| allowed.is(name)));
    let reads = among(&allowed.read_only);
    let name = reads.or_else(|| among(&allowed.names)).or_else(|| names.first());
    let name = name.map_or_else(|| visible(&certificate.subject().to_string()).into_owned(), shown);
    let end = (0..=LONGEST_NAME.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or_default();
    Some(Client {
        name: name[..end].into(),
        uri: only_uri(names),
        serial: Some(serial_of(&certificate)),
        valid_from: Timestamp::from_second(certificate.validity().not_before.timestamp()).ok(),
        until: Timestamp::from_second(certificate.validity().not_after.timestamp()).ok(),
        peer: None,
        is_read_only: reads.is_some(),
    })
}

/// Returns the serial number, of which authorities make at most 20 bytes (RFC 5280, section 4.1.2.2).
fn serial_of(certificate: &X509Certificate<'_>) -> ArcStr {
    let digits = certificate.raw_serial_as_string();
    digits.chars().filter(char::is_ascii_hexdigit).take(LONGEST_SERIAL).collect::<String>().into()
}

/// Returns the only URI among the names. A certificate with several names no identity by them.
fn only_uri(names: &[GeneralName<'_>]) -> Option<ArcStr> {
    let uri = |name: &GeneralName<'_>| if let GeneralName::URI(uri) = name { Some(ArcStr::from(*uri)) } else { None };
    let mut uris = names.iter().filter_map(uri);
    let first = uris.next().filter(|uri| uri.len() <= LONGEST_URI);
    if uris.next().is_none() { first } else { None }
}

/// Formats a name as the flags take it, safe for a log; a name of a kind that they don't take is shown with its kind.
pub(super) fn shown(name: &GeneralName<'_>) -> String {
    let text = match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) => (*name).to_owned(),
        other => other.to_string(),
    };
    visible(&text).into_owned()
}

/// Returns the names for a log. A certificate may have any number of them.
fn quoted(names: &[GeneralName<'_>]) -> String {
    if names.is_empty() {
        return "it has none".to_owned();
    }
    let some = names.iter().take(MOST_QUOTED).map(shown).collect::<Vec<_>>().join(", ");
    let more = if names.len() > MOST_QUOTED { ", …" } else { "" };
    format!("{}{more}", shortened(&some, LONGEST_NAME))
}

/// Verifies as `inner` does, and then checks names.
#[derive(Debug)]
pub(super) struct NamedClients {
    pub(super) inner: Arc<dyn ClientCertVerifier>,
    pub(super) allowed: AllowedClients,
}

impl NamedClients {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let unreadable = || Error::InvalidCertificate(CertificateError::BadEncoding);
        let (_, certificate) = X509Certificate::from_der(certificate).map_err(|_| unreadable())?;
        let extension = certificate.get_extension_unique(&OID_X509_EXT_SUBJECT_ALT_NAME).map_err(|_| unreadable())?;
        let names = match extension.map(X509Extension::parsed_extension) {
            None => &[][..],
            Some(ParsedExtension::SubjectAlternativeName(names)) => &names.general_names,
            // One of them may be a name that may only read.
            Some(_) => return Err(unreadable()),
        };
        let AllowedClients { names: all, read_only } = &self.allowed;
        let is_in = |list: &[AllowedName]| names.iter().any(|name| list.iter().any(|allowed| allowed.is(name)));
        if !all.is_empty() && !is_in(all) && !is_in(read_only) {
            let why = OtherError(Arc::new(NotAllowed(quoted(names))));
            return Err(Error::InvalidCertificate(CertificateError::Other(why)));
        }
        Ok(())
    }
}

impl ClientCertVerifier for NamedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        self.check(end_entity)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("Cluster-Autoscaler", AllowedName::Dns("cluster-autoscaler".to_owned()))]
    #[case("ca.kube-system.svc", AllowedName::Dns("ca.kube-system.svc".to_owned()))]
    #[case("spiffe://prod/ca", AllowedName::Uri("spiffe://prod/ca".to_owned()))]
    fn a_name_is_dns_or_a_uri(#[case] text: &str, #[case] expected: AllowedName) {
        assert_eq!(text.parse(), Ok(expected));
    }

    #[test]
    fn of_many_names_few_are_quoted() {
        let long = "n".repeat(200);
        let names: Vec<_> = (0..1_000).map(|_| GeneralName::DNSName(&long)).collect();
        assert!(quoted(&names).len() < 300, "{}", quoted(&names));
        assert_eq!(quoted(&[GeneralName::DNSName("a"), GeneralName::URI("b://c")]), "a, b://c");
        assert_eq!(quoted(&[]), "it has none");
    }

    #[rstest]
    #[case("")]
    #[case("*.example.com")]
    #[case("a b")]
    #[case("a..b")]
    #[case("://x")]
    #[case("spiffe://")]
    fn anything_else_is_refused(#[case] text: &str) {
        assert_eq!(text.parse::<AllowedName>(), Err(NameError));
    }
}
