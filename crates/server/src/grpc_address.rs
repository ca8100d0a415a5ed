//! The addresses that gRPC is served on: an IP address and port, or the path of a Unix socket.

use std::{
    fmt,
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    str::FromStr,
};

use thiserror::Error;

use super::{BindError, SocketError, UnixSocket, bind};

const UNIX: &str = "unix://";
/// The maximum length of a path that the system accepts, without the terminating byte.
const LONGEST_PATH: usize = 107;

/// An address that gRPC is served on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GrpcAddress {
    /// An IP address and a port.
    Tcp(SocketAddr),
    /// The absolute path of a Unix socket.
    Unix(PathBuf),
}

/// The error of a text that isn't such an address.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "it has to be an IP address and a port, such as 127.0.0.1:8086, 0.0.0.0:8086 or [::]:8086, or a Unix socket by an \
     absolute path of at most {LONGEST_PATH} bytes, such as unix:///run/capi-autoscaler-provider/grpc.sock"
)]
pub struct GrpcAddressError;

impl GrpcAddress {
    /// Returns true if only processes of this machine can reach it. An IPv4-mapped IPv6 address counts as the IPv4
    /// address.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl FromStr for GrpcAddress {
    type Err = GrpcAddressError;

    fn from_str(text: &str) -> Result<Self, GrpcAddressError> {
        let Some(path) = text.strip_prefix(UNIX) else {
            return text.parse().map(Self::Tcp).map_err(|_| GrpcAddressError);
        };
        let is_file = path.starts_with('/') && !path.ends_with('/') && !path.contains('\0');
        if is_file && path.len() <= LONGEST_PATH { Ok(Self::Unix(path.into())) } else { Err(GrpcAddressError) }
    }
}

impl fmt::Display for GrpcAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(formatter),
            Self::Unix(path) => write!(formatter, "{UNIX}{}", path.display()),
        }
    }
}

/// An open gRPC listener.
#[derive(Debug)]
pub enum GrpcListener {
    /// On an IP address.
    Tcp(TcpListener),
    /// On a Unix socket.
    Unix(UnixSocket),
}

/// The reason why gRPC can't be served on an address.
#[derive(Debug, Error)]
pub enum GrpcListenError {
    /// An error of an IP address.
    #[error(transparent)]
    Tcp(#[from] BindError),
    /// An error of a Unix socket.
    #[error(transparent)]
    Unix(#[from] SocketError),
}

impl GrpcListener {
    /// Opens a non-blocking listener; `rights` apply to a Unix socket.
    ///
    /// # Errors
    /// If the address is in use, or may not be used. The error names `flag` to change it.
    pub fn open(address: &GrpcAddress, socket_mode: u32, flag: &'static str) -> Result<Self, GrpcListenError> {
        match address {
            GrpcAddress::Tcp(address) => Ok(Self::Tcp(bind(*address, flag)?)),
            GrpcAddress::Unix(path) => Ok(Self::Unix(UnixSocket::bind(path, socket_mode)?)),
        }
    }
}

impl From<TcpListener> for GrpcListener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::ip("127.0.0.1:8086", true)]
    #[case::socket("unix:///run/a.sock", true)]
    #[case::relative("unix://run/a.sock", false)]
    #[case::host("unix://localhost/run/a.sock", false)]
    #[case::short("unix:/run/a.sock", false)]
    #[case::abstract_name("unix-abstract:a", false)]
    #[case::directory("unix:///run/", false)]
    #[case::nothing("unix://", false)]
    #[case::plain_path("/run/a.sock", false)]
    fn an_address_is_of_ip_or_an_absolute_path(#[case] text: &str, #[case] is_address: bool) {
        let address = text.parse::<GrpcAddress>();
        assert_eq!(address.is_ok(), is_address, "{address:?}");
        assert!(address.is_ok_and(|address| address.to_string() == text) || !is_address);
    }

    #[test]
    fn a_path_has_a_longest_length() {
        let of = |length: usize| format!("unix:///{}", "a".repeat(length - 1)).parse::<GrpcAddress>();
        assert!(of(LONGEST_PATH).is_ok());
        assert_eq!(of(LONGEST_PATH + 1), Err(GrpcAddressError));
    }
}
