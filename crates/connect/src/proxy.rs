//! Connections to API servers, direct or through an HTTP proxy by CONNECT, as the environment or a kubeconfig says.
//! TLS is end to end with the server, through the proxy. This file must never log or return anything of a proxy's URL
//! but its address.
//!
//! The variables mean what they mean to Go's clients: `HTTPS_PROXY` (or `https_proxy`) is for servers with TLS, and
//! `NO_PROXY` (or `no_proxy`) lists those to connect to directly. Loopback is always direct. `HTTP_PROXY` isn't read:
//! it is for servers without TLS, and those are on loopback.
//!
//! kube's own proxy support belongs to a client stack that isn't used here, and reads `NO_PROXY` only with a
//! kubeconfig, not in a Pod. hyper-util has the rules of `NO_PROXY` and the tunnel; ports and loopback are added as in
//! Go.

use std::{
    fmt,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, LazyLock},
    task,
};

use http::{Uri, uri::Scheme};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::{
    client::{
        legacy::connect::{HttpConnector, proxy::Tunnel},
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use rustls::{ClientConfig, RootCertStore};
use thiserror::Error;
use tokio::net::TcpStream;
use tower::{BoxError, Service};

/// The error for a proxy that can't be used. Its text has nothing of the URL.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("{variable}: it isn't the URL of a proxy that can be used: give http://HOST:PORT or https://HOST:PORT")]
pub struct WrongProxy {
    /// The variable or field that holds the URL.
    variable: &'static str,
}

/// The error of a connection through a proxy.
#[derive(Debug, Error)]
#[error("through the proxy {proxy}")]
struct Failed {
    proxy: String,
    source: BoxError,
}

/// The choice of a proxy for each server.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    /// The proxy of the configuration itself, for every server.
    own: Option<Intercept>,
    /// The proxy of the environment, for servers with TLS that aren't among the exceptions.
    common: Option<Intercept>,
    exceptions: Arc<str>,
}

impl Proxies {
    /// Reads the environment's proxies.
    ///
    /// # Errors
    /// When a variable holds no URL of a proxy.
    pub fn of_environment() -> Result<Self, WrongProxy> {
        Self::of_variables(|name| std::env::var(name).ok())
    }

    /// Reads the proxies from variables. The first variable that isn't empty counts.
    pub(super) fn of_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, WrongProxy> {
        let first = |names: [&'static str; 2]| {
            let mut values = names.into_iter().filter_map(|name| Some((name, variable(name)?)));
            values.find(|(_, value)| !value.trim().is_empty())
        };
        let common = first(["HTTPS_PROXY", "https_proxy"]).map(|(name, url)| parse(name, url.trim())).transpose()?;
        let exceptions = first(["NO_PROXY", "no_proxy"]).map(|(_, value)| value).unwrap_or_default();
        Ok(Self { own: None, common, exceptions: exceptions.into() })
    }

    /// Returns the same, with the proxy that the configuration names itself.
    pub(super) fn with_own(self, url: &str) -> Result<Self, WrongProxy> {
        Ok(Self { own: Some(parse("proxy-url", url)?), ..self })
    }

    /// Returns the proxy for a server; `None` means a direct connection.
    fn on_the_way_to(&self, server: &Uri) -> Option<&Intercept> {
        if self.own.is_some() {
            return self.own.as_ref();
        }
        let common = self.common.as_ref().filter(|_| server.scheme() == Some(&Scheme::HTTPS))?;
        let host = server.host()?;
        let is_straight = is_loopback(host) || self.is_excepted(host, server.port_u16().unwrap_or(443));
        (!is_straight).then_some(common)
    }

    /// Returns true if `NO_PROXY` names the server. The library handles names, addresses and networks; ports and
    /// wildcards are handled here as Go does.
    fn is_excepted(&self, host: &str, port: u16) -> bool {
        let mut entries = Vec::new();
        for entry in self.exceptions.split(',').map(str::trim) {
            if entry == "*" {
                return true;
            }
            let (name, wanted) = match entry.rsplit_once(':') {
                // A name with several colons and no brackets is an IPv6 address.
                Some((name, wanted)) if !name.contains(':') || name.ends_with(']') => (name, wanted.parse().ok()),
                Some(_) | None => (entry, None),
            };
            if wanted.is_none_or(|wanted: u16| wanted == port) {
                let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
                entries.push(name.trim_start_matches('[').trim_end_matches(']'));
            }
        }
        let matcher = Matcher::builder().https("http://proxy").no(entries.join(",")).build();
        let Ok(server) = Uri::builder().scheme("https").authority(host).path_and_query("/").build() else {
            return false;
        };
        matcher.intercept(&server).is_none()
    }

    fn any_with_tls(&self) -> bool {
        let proxies = [&self.own, &self.common];
        proxies.into_iter().flatten().any(|proxy| proxy.uri().scheme() == Some(&Scheme::HTTPS))
    }
}

fn parse(variable: &'static str, url: &str) -> Result<Intercept, WrongProxy> {
    let proxy = Matcher::builder().https(url).build().intercept(&Uri::from_static("https://server"));
    let is_http = |proxy: &Intercept| matches!(proxy.uri().scheme_str(), Some("http" | "https"));
    proxy.filter(is_http).ok_or(WrongProxy { variable })
}

/// Returns true if a host as a URL has it is this machine.
pub fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.map_or(host == "localhost", |address| address.to_canonical().is_loopback())
}

/// A connector that connects directly or through a proxy. The server's TLS is left to the layer above.
#[derive(Clone)]
pub struct Connector {
    tcp: HttpConnector,
    to_proxy: HttpsConnector<HttpConnector>,
    proxies: Proxies,
}

impl Connector {
    /// Creates a connector that uses `tcp`. A proxy with TLS is verified by the system's root certificates.
    ///
    /// # Errors
    /// When a proxy with TLS is set and there are no root certificates.
    pub fn new(tcp: HttpConnector, proxies: Proxies) -> std::io::Result<Self> {
        let to_proxy = if proxies.any_with_tls() {
            let https = HttpsConnectorBuilder::new().with_native_roots()?;
            https.https_or_http().enable_http1().wrap_connector(tcp.clone())
        } else {
            HttpsConnector::from((tcp.clone(), no_authority()))
        };
        Ok(Self { tcp, to_proxy, proxies })
    }
}

/// Returns the TLS of connections that have none: it trusts nobody. All share it.
pub(super) fn no_authority() -> Arc<ClientConfig> {
    static NONE: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
        let nobody = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
        Arc::new(nobody.with_no_client_auth())
    });
    Arc::clone(&NONE)
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector").field("proxies", &self.proxies).finish_non_exhaustive()
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> task::Poll<Result<(), BoxError>> {
        Service::<Uri>::poll_ready(&mut self.tcp, context).map_err(BoxError::from)
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let Some(proxy) = self.proxies.on_the_way_to(&server) else {
            let straight = self.tcp.call(server);
            return Box::pin(async move { Ok(MaybeHttpsStream::Http(straight.await?)) });
        };
        let address = format!("{}://{}", proxy.uri().scheme_str().unwrap_or("http"), authority(proxy.uri()));
        let mut tunnel = Tunnel::new(proxy.uri().clone(), self.to_proxy.clone());
        if let Some(credentials) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(credentials.clone());
        }
        let through = tunnel.call(with_port(server));
        Box::pin(async move {
            through.await.map_err(|error| BoxError::from(Failed { proxy: address, source: BoxError::from(error) }))
        })
    }
}

fn authority(uri: &Uri) -> &str {
    uri.authority().map_or("", http::uri::Authority::as_str)
}

/// Adds the port 80 to a plain address without one, since the tunnel would use 443.
fn with_port(server: Uri) -> Uri {
    if server.port().is_some() || server.scheme() != Some(&Scheme::HTTP) {
        return server;
    }
    let with_port = Uri::builder().scheme("http").authority(format!("{}:80", authority(&server))).path_and_query("/");
    with_port.build().unwrap_or(server)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, WrongProxy> {
        Proxies::of_variables(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn way(variables: &[(&str, &str)], server: &str) -> Option<String> {
        let proxies = proxies(variables).unwrap();
        proxies.on_the_way_to(&server.parse().unwrap()).map(|proxy| authority(proxy.uri()).to_owned())
    }

    const PROXY: (&str, &str) = ("HTTPS_PROXY", "http://proxy:3128");

    #[rstest]
    #[case::upper_case(&[PROXY], "https://api:6443", true)]
    #[case::lower_case(&[("https_proxy", "http://proxy:3128")], "https://api:6443", true)]
    #[case::upper_case_wins(&[PROXY, ("https_proxy", "http://other:1")], "https://api", true)]
    #[case::an_empty_one_counts_as_none(&[("HTTPS_PROXY", ""), ("https_proxy", "http://proxy:3128")], "https://api", true)]
    #[case::without_a_scheme(&[("HTTPS_PROXY", "proxy:3128")], "https://api", true)]
    #[case::none(&[], "https://api", false)]
    #[case::no_tls(&[PROXY], "http://api", false)]
    #[case::localhost(&[PROXY], "https://localhost:6443", false)]
    #[case::loopback(&[PROXY], "https://127.1.2.3", false)]
    #[case::loopback_v6(&[PROXY], "https://[::1]:6443", false)]
    fn https_proxy_is_for_servers_with_tls_beyond_loopback(
        #[case] variables: &[(&str, &str)],
        #[case] server: &str,
        #[case] through: bool,
    ) {
        assert_eq!(way(variables, server), through.then(|| "proxy:3128".to_owned()));
    }

    #[rstest]
    #[case::name("api.example.com", "https://api.example.com:6443", false)]
    #[case::domain_of_it("example.com", "https://api.example.com", false)]
    #[case::suffix(".example.com", "https://api.example.com", false)]
    #[case::star_suffix("*.example.com", "https://api.example.com", false)]
    #[case::no_suffix_of_a_word("ample.com", "https://api.example.com", true)]
    #[case::address("10.1.2.3", "https://10.1.2.3", false)]
    #[case::network("10.0.0.0/8", "https://10.96.0.1:443", false)]
    #[case::another_network("10.0.0.0/8", "https://11.0.0.1", true)]
    #[case::network_v6("fd00::/8", "https://[fd00::1]:443", false)]
    #[case::the_port("api:6443", "https://api:6443", false)]
    #[case::another_port("api:443", "https://api:6443", true)]
    #[case::the_default_port("api:443", "https://api", false)]
    #[case::port_of_an_address("[fd00::1]:6443", "https://[fd00::1]:6443", false)]
    #[case::one_of_several("a, .svc ,10.0.0.0/8", "https://kubernetes.default.svc", false)]
    #[case::everything("*", "https://10.1.2.3", false)]
    #[case::nothing("", "https://api", true)]
    fn no_proxy_names_what_is_reached_straight(#[case] list: &str, #[case] server: &str, #[case] through: bool) {
        assert_eq!(way(&[PROXY, ("NO_PROXY", list)], server).is_some(), through);
        assert_eq!(way(&[PROXY, ("no_proxy", list)], server).is_some(), through);
    }

    #[rstest]
    #[case::socks("socks5://proxy:1080")]
    #[case::no_url("http://")]
    #[case::space("http://user:hunter2@a b")]
    #[case::another_scheme("ftp://user:hunter2@proxy")]
    fn an_invalid_proxy_url_is_reported_by_its_variable_without_the_password(#[case] url: &str) {
        let error = proxies(&[("HTTPS_PROXY", url)]).unwrap_err();
        assert!(error.to_string().starts_with("HTTPS_PROXY: it isn't the URL of a proxy"), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }

    #[test]
    fn a_proxy_of_the_configuration_is_for_every_server() {
        let proxies = proxies(&[PROXY, ("NO_PROXY", "*")]).unwrap().with_own("http://user:hunter2@own:1").unwrap();
        for server in ["https://api", "http://127.0.0.1:8080"] {
            let proxy = proxies.on_the_way_to(&server.parse().unwrap()).unwrap();
            assert_eq!(authority(proxy.uri()), "own:1");
        }
        assert!(!format!("{proxies:?}").contains("hunter2"));
    }
}
