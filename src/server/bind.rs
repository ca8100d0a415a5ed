//! Opening a listener. It happens before anything else is started, so that an address that is taken ends the
//! program at once and port 0 works.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

use thiserror::Error;

/// An address that can't be listened on.
#[derive(Debug, Error)]
#[error("can't listen on {address}: {error}: choose another address with {flag}")]
pub struct BindError {
    /// The address asked for.
    pub address: SocketAddr,
    /// The flag that names it.
    pub flag: &'static str,
    /// The operating system's error.
    pub error: io::Error,
}

/// Opens a non-blocking listener.
///
/// # Errors
/// When the address is taken, isn't this machine's, or may not be used; it names `flag` to change it.
pub fn bind(address: SocketAddr, flag: &'static str) -> Result<TcpListener, BindError> {
    let failed = |error| BindError { address, flag, error };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}
