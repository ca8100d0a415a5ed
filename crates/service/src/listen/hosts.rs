//! The requests that the admin listener answers, by the hosts that they name and by the page that made them. A web page
//! may point its own name to a loopback address and then read whatever listens there as its own (DNS rebinding). Its
//! requests still carry that name, so only the names of loopback and those that the operator gives may be answered.

use std::{net::IpAddr, str::FromStr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header::HOST, uri::Authority},
    middleware::Next,
    response::Response,
};
use thiserror::Error;

use super::http::{TEXT, page};

/// The maximum length of a DNS name.
const LONGEST: usize = 253;

/// The allowed hosts.
#[derive(Clone, Debug)]
pub struct AllowedHosts {
    /// The address of the listener.
    pub listened_on: IpAddr,
    /// Further names, and addresses that lead to the listener.
    pub names: Vec<HostName>,
}

/// A host name or an IP address, without a port and in lower case.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostName(String);

/// The error of a text that isn't a host name.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("it has to be a DNS name or an IP address without scheme, port and path, such as status.example.com")]
pub struct HostNameError;

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let name = text.to_ascii_lowercase();
        if bare(&name).parse::<IpAddr>().is_ok() {
            return Ok(Self(bare(&name).to_owned()));
        }
        let is_label = |label: &str| {
            let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
            !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
        };
        let name = name.strip_suffix('.').unwrap_or(&name);
        if name.len() <= LONGEST && name.split('.').all(is_label) {
            Ok(Self(name.to_owned()))
        } else {
            Err(HostNameError)
        }
    }
}

impl AllowedHosts {
    /// Allows the names of loopback and the address of the listener.
    #[must_use]
    pub fn on(listened_on: IpAddr) -> Self {
        Self { listened_on, names: Vec::new() }
    }

    /// Returns the host that a request names if it isn't allowed; empty if it names none, or several.
    fn wrong_host(&self, request: &Request) -> Option<String> {
        let mut headers = request.headers().get_all(HOST).iter();
        let (header, more) = (headers.next(), headers.next());
        let (Some(header), None) = (header, more) else { return Some(String::new()) };
        let shown = || String::from_utf8_lossy(header.as_bytes()).into_owned();
        let Some(host) = header.to_str().ok().and_then(|text| text.parse::<Authority>().ok()) else {
            return Some(shown());
        };
        if !self.answers(host.host()) {
            return Some(shown());
        }
        // A request line may name a host of its own, and would win over the header.
        let line = Uri::host(request.uri())?;
        (!self.answers(line)).then(|| line.to_owned())
    }

    /// Returns true if the host is allowed. Anyone can point a name at any address, so only the names of loopback, the
    /// addresses of the listener, and the hosts that the operator gives are allowed.
    fn answers(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        let is_given = self.names.iter().any(|name| name.0.eq_ignore_ascii_case(bare(host)));
        if is_given || is_loopback(host) {
            return true;
        }
        match bare(host).parse::<IpAddr>().map(|ip| ip.to_canonical()) {
            Ok(ip) => self.listened_on.is_unspecified() || ip == self.listened_on.to_canonical(),
            Err(_) => false,
        }
    }
}

/// Returns true for a name or an address of loopback.
pub(super) fn is_loopback(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_address = || bare(host).parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    host.eq_ignore_ascii_case("localhost") || is_address()
}

/// Removes the brackets that an IPv6 address has in URLs.
fn bare(host: &str) -> &str {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

/// Lets requests pass that name an allowed host and aren't made by a page of another site.
pub(super) async fn check_request(State(hosts): State<Arc<AllowedHosts>>, request: Request, next: Next) -> Response {
    match hosts.wrong_host(&request) {
        None if is_cross_site(request.headers(), request.method()) => {
            page(StatusCode::FORBIDDEN, TEXT, "requests of other sites' pages aren't answered\n")
        }
        None => next.run(request).await,
        Some(host) => page(
            StatusCode::MISDIRECTED_REQUEST,
            TEXT,
            format!(
                "host {host:?} isn't answered here: ask by a loopback address or localhost, by the IP address that is \
                 listened on, or by a name that --admin-allowed-hosts gives\n"
            ),
        ),
    }
}

/// Returns true if the browser marks the request as made by a page of another origin. Following a link to this listener
/// is allowed.
fn is_cross_site(headers: &HeaderMap, method: &Method) -> bool {
    let value = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    let is_link = || *method == Method::GET && value("sec-fetch-mode") == Some(b"navigate");
    let is_framed = || value("sec-fetch-dest") != Some(b"document");
    match value("sec-fetch-site") {
        None | Some(b"same-origin" | b"none") => false,
        Some(_) => !is_link() || is_framed(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("status.example.com", true)]
    #[case("Status.Example.COM.", true)]
    #[case("capi-autoscaler.team_a", true)]
    #[case("10.0.0.5", true)]
    #[case("2001:db8::1", true)]
    #[case("[2001:db8::1]", true)]
    #[case("status.example.com:8081", false)]
    #[case("http://status.example.com", false)]
    #[case("status.example.com/", false)]
    #[case("*.example.com", false)]
    #[case("a..b", false)]
    #[case("-a", false)]
    #[case("", false)]
    #[case("user@host", false)]
    fn a_host_is_a_name_or_an_address(#[case] text: &str, #[case] is_one: bool) {
        assert_eq!(text.parse::<HostName>().is_ok(), is_one, "{text}");
    }
}
