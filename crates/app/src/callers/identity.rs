//! The identity of an autoscaler: the SPIFFE id of its Cluster, which is the only URI of its certificate. Nothing but
//! the exact form is an identity: no other case, no percent-encoding, no further path.

use std::{fmt, str::FromStr};

use rules::capi::ObjectKey;
use thiserror::Error;

use connect::ClusterRef;

/// The maximum length of a trust domain (SPIFFE-ID, section 2.3).
const LONGEST: usize = 255;

/// The trust domain of the autoscalers' identities, such as `example.org`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TrustDomain(String);

/// The error of a text that isn't a trust domain.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "it has to be a trust domain of SPIFFE, such as example.org: 1 to {LONGEST} lower-case letters, digits, '.', '-' and '_'"
)]
pub struct TrustDomainError;

impl FromStr for TrustDomain {
    type Err = TrustDomainError;

    fn from_str(text: &str) -> Result<Self, TrustDomainError> {
        let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
        let is_domain = (1..=LONGEST).contains(&text.len()) && text.bytes().all(is_allowed);
        if is_domain { Ok(Self(text.to_owned())) } else { Err(TrustDomainError) }
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TrustDomain {
    /// Returns the Cluster of `spiffe://<trust-domain>/ns/<namespace>/cluster/<name>`; `None` for any other text.
    pub(super) fn cluster_of(&self, uri: &str) -> Option<ObjectKey> {
        let path = uri.strip_prefix("spiffe://")?.strip_prefix(self.0.as_str())?;
        let (namespace, name) = path.strip_prefix("/ns/")?.split_once("/cluster/")?;
        let cluster = ClusterRef::new(namespace, name).ok()?;
        Some(ObjectKey::new(cluster.namespace(), cluster.name()))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("spiffe://prod.example/ns/team-a/cluster/stage", Some("team-a/stage"))]
    #[case("spiffe://prod.example/ns/team-a/cluster/cluster", Some("team-a/cluster"))]
    #[case::another_domain("spiffe://test.example/ns/team-a/cluster/stage", None)]
    #[case::a_longer_domain("spiffe://prod.example.evil/ns/team-a/cluster/stage", None)]
    #[case::a_shorter_domain("spiffe://prod/ns/team-a/cluster/stage", None)]
    #[case::a_port("spiffe://prod.example:1/ns/team-a/cluster/stage", None)]
    #[case::a_user("spiffe://a@prod.example/ns/team-a/cluster/stage", None)]
    #[case::upper_case("SPIFFE://prod.example/ns/team-a/cluster/stage", None)]
    #[case::upper_case_name("spiffe://prod.example/ns/team-a/cluster/Stage", None)]
    #[case::another_scheme("https://prod.example/ns/team-a/cluster/stage", None)]
    #[case::a_service_account("spiffe://prod.example/ns/team-a/sa/default", None)]
    #[case::a_further_path("spiffe://prod.example/ns/team-a/cluster/stage/cluster/other", None)]
    #[case::a_path_before("spiffe://prod.example/x/ns/team-a/cluster/stage", None)]
    #[case::a_slash_at_the_end("spiffe://prod.example/ns/team-a/cluster/stage/", None)]
    #[case::a_path_in_the_namespace("spiffe://prod.example/ns/team-b/../team-a/cluster/stage", None)]
    #[case::no_namespace("spiffe://prod.example/ns//cluster/stage", None)]
    #[case::no_name("spiffe://prod.example/ns/team-a/cluster/", None)]
    #[case::a_query("spiffe://prod.example/ns/team-a/cluster/stage?x", None)]
    #[case::a_fragment("spiffe://prod.example/ns/team-a/cluster/stage#x", None)]
    #[case::percent_encoding("spiffe://prod.example/ns/team-a/cluster/st%61ge", None)]
    #[case::a_space("spiffe://prod.example/ns/team-a/cluster/stage ", None)]
    #[case::nothing("", None)]
    fn an_identity_has_one_form(#[case] uri: &str, #[case] expected: Option<&str>) {
        let domain: TrustDomain = "prod.example".parse().unwrap();
        assert_eq!(domain.cluster_of(uri).map(|cluster| cluster.to_string()).as_deref(), expected);
    }

    #[rstest]
    #[case("example.org", true)]
    #[case("prod_1-a", true)]
    #[case("", false)]
    #[case("Example.org", false)]
    #[case("spiffe://example.org", false)]
    #[case("example.org/", false)]
    #[case("a b", false)]
    fn a_trust_domain_is_a_lower_case_name(#[case] text: &str, #[case] is_domain: bool) {
        assert_eq!(text.parse::<TrustDomain>().is_ok(), is_domain);
        assert!("a".repeat(256).parse::<TrustDomain>().is_err());
    }
}
