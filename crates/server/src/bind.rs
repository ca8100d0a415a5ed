//! Opens listeners. This happens before anything else is started, so that an address in use ends the program at once,
//! and port 0 works.

use std::{
    io,
    net::{SocketAddr, TcpListener},
};

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
