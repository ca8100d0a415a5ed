//! The address of a collector.

use std::{fmt, str::FromStr};

use http::Uri;

/// The URL of an OTLP collector over gRPC. It must never hold credentials.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OtlpEndpoint {
    url: String,
    tls: bool,
}

impl OtlpEndpoint {
    pub(super) fn as_str(&self) -> &str {
        &self.url
    }

    pub(super) fn has_tls(&self) -> bool {
        self.tls
    }
}

impl fmt::Display for OtlpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl FromStr for OtlpEndpoint {
    type Err = &'static str;

    /// Parses the URL. The error never quotes it, since it may hold a password.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rule = "it has to be a URL such as http://otel-collector:4317 or https://otel.example.com:4317, of a collector \
                    that takes OTLP by gRPC";
        let uri: Uri = text.parse().map_err(|_| rule)?;
        let authority = uri.authority().ok_or(rule)?;
        if authority.as_str().contains('@') {
            return Err("it must not hold credentials: give them as headers in OTEL_EXPORTER_OTLP_HEADERS");
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err("it must not have a path or query: traces are sent by gRPC, not by HTTP");
        }
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(rule),
        };
        let scheme = if tls { "https" } else { "http" };
        Ok(Self { url: format!("{scheme}://{authority}"), tls })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::plain("http://127.0.0.1:4317", Ok(("http://127.0.0.1:4317", false)))]
    #[case::tls("https://otel.example.com/", Ok(("https://otel.example.com", true)))]
    #[case::no_scheme("otel:4317", Err("it has to be a URL"))]
    #[case::another_scheme("grpc://otel:4317", Err("it has to be a URL"))]
    #[case::a_path("http://otel:4318/v1/traces", Err("must not have a path"))]
    #[case::a_password("https://me:secret@otel:4317", Err("must not hold credentials"))]
    #[case::nothing("", Err("it has to be a URL"))]
    fn an_endpoint_is_a_url_without_credentials(#[case] text: &str, #[case] expected: Result<(&str, bool), &str>) {
        match (text.parse::<OtlpEndpoint>(), expected) {
            (Ok(endpoint), Ok(expected)) => assert_eq!((endpoint.as_str(), endpoint.has_tls()), expected),
            (Err(why), Err(part)) => assert!(why.contains(part) && !why.contains("secret"), "{why}"),
            (parsed, expected) => panic!("{parsed:?} instead of {expected:?}"),
        }
    }
}
