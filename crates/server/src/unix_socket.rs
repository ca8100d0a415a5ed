//! gRPC on a Unix socket: its file, and the processes that may connect. It replaces the socket of a process that has
//! died, and must never replace the socket of a living process, or anything else.

use std::{
    fs::{self, File, OpenOptions, Permissions, TryLockError},
    io,
    os::{
        fd::OwnedFd,
        unix::{
            fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
            net::UnixListener,
        },
    },
    path::{Path, PathBuf},
};

use socket2::{Domain, SockAddr, Socket, Type};
use thiserror::Error;

/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// The permissions of a socket's file unless others are chosen: processes of the same user may connect.
pub const PRIVATE_SOCKET: u32 = 0o600;

/// A Unix socket that can't be listened on.
#[derive(Debug, Error)]
#[error("can't listen on unix://{}: {why}", .path.display())]
pub struct SocketError {
    /// The path.
    pub path: PathBuf,
    /// The reason, with the remedy.
    pub why: SocketErrorReason,
}

/// The reason why a socket can't be listened on.
#[derive(Debug, Error)]
pub enum SocketErrorReason {
    /// Another process holds the lock, or answers.
    #[error("another process serves there: end it, or choose another path with --listen")]
    InUse,
    /// The path is something else than a socket.
    #[error("the path exists and is no socket: remove it, or choose another path with --listen")]
    NoSocket,
    /// The operating system refuses a step.
    #[error("can't {step} {}: {error}: give this process the right to it, or choose another path with --listen", .path.display())]
    System {
        /// The step.
        step: &'static str,
        /// The path that the step concerns.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
}

/// A listener on a Unix socket. Its file is removed when it is dropped.
#[derive(Debug)]
pub struct UnixSocket {
    listener: UnixListener,
    file: SocketFile,
}

/// The file of a socket, and the lock that shows that its process lives.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    identity: Option<(u64, u64)>,
    _lock: File,
}

impl UnixSocket {
    /// Opens a non-blocking listener. The lock file `<path>.lock` stays, locked for the lifetime of this process.
    ///
    /// # Errors
    /// If another process serves there, something else is there, or a permission is missing.
    pub fn bind(path: &Path, mode: u32) -> Result<Self, SocketError> {
        bind(path, mode).map_err(|why| SocketError { path: path.to_owned(), why })
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    pub(super) fn into_parts(self) -> (UnixListener, SocketFile) {
        (self.listener, self.file)
    }
}

fn bind(path: &Path, mode: u32) -> Result<UnixSocket, SocketErrorReason> {
    let lock = lock(path)?;
    remove_stale(path)?;
    let failed = |step| move |error| SocketErrorReason::System { step, path: path.to_owned(), error };
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed("make"))?;
    let address = SockAddr::unix(path).map_err(failed("name"))?;
    // Nobody else can connect before the mode is set: Linux takes the mode of the file from the unbound socket.
    let unnamed = File::from(OwnedFd::from(socket.try_clone().map_err(failed("make"))?));
    unnamed.set_permissions(Permissions::from_mode(PRIVATE_SOCKET)).map_err(failed("protect"))?;
    socket.bind(&address).map_err(failed("make"))?;
    let mut file = SocketFile { path: path.to_owned(), identity: None, _lock: lock };
    file.identity = identity(path);
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed("set the mode of"))?;
    socket.listen(BACKLOG).map_err(failed("listen on"))?;
    socket.set_nonblocking(true).map_err(failed("listen on"))?;
    Ok(UnixSocket { listener: OwnedFd::from(socket).into(), file })
}

/// Takes the lock of a path. The operating system releases it when the process ends, in whatever way.
fn lock(path: &Path) -> Result<File, SocketErrorReason> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let failed = |error| SocketErrorReason::System { step: "lock", path: name.clone(), error };
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).mode(PRIVATE_SOCKET).open(&name).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(SocketErrorReason::InUse),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Removes a socket that nobody listens on.
fn remove_stale(path: &Path) -> Result<(), SocketErrorReason> {
    let failed = |step| move |error| SocketErrorReason::System { step, path: path.to_owned(), error };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed("look at")(error)),
        Ok(found) if !found.file_type().is_socket() => return Err(SocketErrorReason::NoSocket),
        Ok(_) => {}
    }
    let asking = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(failed("ask"))?;
    // A process that doesn't accept must not block this one.
    asking.set_nonblocking(true).map_err(failed("ask"))?;
    match asking.connect(&SockAddr::unix(path).map_err(failed("name"))?) {
        Ok(()) => Err(SocketErrorReason::InUse),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(SocketErrorReason::InUse),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed("remove the socket of a dead process at"))
        }
        Err(error) => Err(failed("ask")(error)),
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            // A file that can't be removed is replaced at the next start.
            let _ = fs::remove_file(&self.path);
        }
    }
}
