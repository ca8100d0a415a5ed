//! The addresses that are listened on: an IP address and port, or for gRPC the path of a Unix socket too. Listeners are
//! opened before anything else is started, so that an address in use ends the program at once, and port 0 works. A Unix
//! socket replaces that of a process that has died, and must never replace that of a living one, or anything else.

use std::{
    fmt,
    fs::{self, File, Permissions},
    io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{FileTypeExt as _, PermissionsExt as _},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
    str::FromStr,
};

use socket2::{Domain, SockAddr, Socket, Type};
use thiserror::Error;

/// An address that can't be listened on.
#[derive(Debug, Error)]
#[error("can't listen on {address}: {error}: choose another address with {flag}")]
pub struct BindError {
    /// The requested address.
    pub address: SocketAddr,
    /// The flag that sets it.
    pub flag: &'static str,
    /// The operating system's error.
    pub error: io::Error,
}

/// Opens a non-blocking listener.
///
/// # Errors
/// If the address is in use, isn't this machine's, or may not be used. The error names `flag` to change it.
pub fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, BindError> {
    let failed = |error| BindError { address, flag, error };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

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
    /// Opens a non-blocking listener; `socket_mode` applies to a Unix socket.
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

/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// The permissions of a socket's file unless others are chosen: processes of the same user may connect.
pub const PRIVATE_SOCKET: u32 = 0o600;

/// A Unix socket that can't be listened on.
#[derive(Debug, Error)]
#[error("can't listen on unix://{}: {why}, or choose another path with --listen", .path.display())]
pub struct SocketError {
    /// The path.
    pub path: PathBuf,
    /// The reason, with the remedy.
    pub why: String,
}

/// A listener on a Unix socket. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl UnixSocket {
    /// Opens a non-blocking listener.
    ///
    /// # Errors
    /// If another process serves there, something else is there, or a permission is missing.
    pub fn bind(path: &Path, mode: u32) -> Result<Self, SocketError> {
        bind_socket(path, mode).map_err(|why| SocketError { path: path.to_owned(), why })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.file.0
    }

    pub(super) fn into_parts(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

/// Returns the reason why a step can't be done.
fn failed(step: &str, path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("can't {step} {}: {error}: give this process the right to it", path.display())
}

fn bind_socket(path: &Path, mode: u32) -> Result<UnixSocket, String> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed("make", path))?;
    let address = SockAddr::unix(path).map_err(failed("name", path))?;
    // Nobody else can connect before the mode is set: Linux takes the mode of the file from the unbound socket.
    let unnamed = File::from(OwnedFd::from(socket.try_clone().map_err(failed("make", path))?));
    unnamed.set_permissions(Permissions::from_mode(PRIVATE_SOCKET)).map_err(failed("protect", path))?;
    socket.bind(&address).map_err(failed("make", path))?;
    let file = SocketFile(path.to_owned());
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed("set the mode of", path))?;
    socket.listen(BACKLOG).map_err(failed("listen on", path))?;
    socket.set_nonblocking(true).map_err(failed("listen on", path))?;
    Ok(UnixSocket { listener: OwnedFd::from(socket).into(), file })
}

/// Removes a socket that nobody listens on.
fn remove_stale(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at", path)(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err("the path exists and is no socket: remove it".to_owned());
        }
        Ok(_) => {}
    }
    let asking = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed("ask", path))?;
    let in_use = "another process serves there: end it".to_owned();
    // A process that doesn't accept must not block this one.
    asking.set_nonblocking(true).map_err(failed("ask", path))?;
    match asking.connect(&SockAddr::unix(path).map_err(failed("name", path))?) {
        Ok(()) => Err(in_use),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(in_use),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed("remove the socket of a dead process at", path))
        }
        Err(error) => Err(failed("ask", path)(error)),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // A file that can't be removed is replaced at the next start.
        let _ = fs::remove_file(&self.0);
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
