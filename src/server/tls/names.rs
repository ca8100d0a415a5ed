//! Which client names may connect: after the certificate has been verified, one of its subject alternative names has to
//! be allowed. The common name doesn't count, as in every current TLS stack.

use std::{fmt, str::FromStr, sync::Arc};

use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use thiserror::Error;
use x509_parser::{
    extensions::GeneralName,
    prelude::{FromDer, X509Certificate},
};

use crate::text::visible;

/// A subject alternative name: a DNS name, or a URI such as a SPIFFE id.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AllowedName {
    /// A DNS name, in lower case.
    Dns(String),
    /// A URI, compared as it is.
    Uri(String),
}

/// Why a text is no name.
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

/// A client whose certificate is good and whose names aren't allowed.
#[derive(Debug, Error)]
#[error("none of the client certificate's names ({}) is among --tls-allowed-client-names", if names.is_empty() { "it has none" } else { names })]
pub(super) struct NotAllowed {
    names: String,
}

/// A name as it would be allowed, harmless for a log; one of another kind with its kind.
pub(super) fn shown(name: &GeneralName<'_>) -> String {
    let text = match name {
        GeneralName::DNSName(name) | GeneralName::URI(name) => (*name).to_owned(),
        other => other.to_string(),
    };
    visible(&text).into_owned()
}

/// Verifies as `inner` does, and then the names.
#[derive(Debug)]
pub(super) struct NamedClients {
    pub(super) inner: Arc<dyn ClientCertVerifier>,
    pub(super) names: Vec<AllowedName>,
}

impl NamedClients {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        let (_, certificate) = X509Certificate::from_der(certificate)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.as_ref().map_or(&[][..], |extension| &extension.value.general_names);
        if names.iter().any(|name| self.names.iter().any(|allowed| allowed.is(name))) {
            return Ok(());
        }
        let names = names.iter().map(shown).collect::<Vec<_>>().join(", ");
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(NotAllowed { names })))))
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
