//! A recorded call, as bytes. It is decoded only when a check needs it.

use anyhow::{Result, ensure};
use prost::{Message, bytes::Bytes};
use tonic::Code;

/// The length of the prefix of a gRPC message: its compressed flag, and its length.
const PREFIX: usize = 5;

/// A call that has been answered.
#[derive(Clone, Debug)]
pub struct Call {
    /// The RPC, such as `Refresh`.
    pub name: String,
    /// The time of its start: the number of starts and ends before it.
    pub began: usize,
    /// The time of its end, likewise.
    pub ended: usize,
    /// The status code of the answer, or `Cancelled` if the caller didn't wait for it.
    pub code: Code,
    pub(super) request: Bytes,
    pub(super) response: Bytes,
}

impl Call {
    /// Decodes the request.
    pub fn request<M: Message + Default>(&self) -> Result<M> {
        message(&self.request)
    }

    /// Decodes the response.
    pub fn response<M: Message + Default>(&self) -> Result<M> {
        message(&self.response)
    }
}

#[cfg(test)]
impl Call {
    /// Returns a call that a test has made up.
    pub(super) fn made(
        name: &str,
        time: [usize; 2],
        code: Code,
        asked: &impl Message,
        answered: &impl Message,
    ) -> Self {
        let body = |message: &[u8]| Bytes::from([&[0; PREFIX], message].concat());
        let (request, response) = (body(&asked.encode_to_vec()), body(&answered.encode_to_vec()));
        Self { name: name.to_owned(), began: time[0], ended: time[1], code, request, response }
    }
}

fn message<M: Message + Default>(body: &Bytes) -> Result<M> {
    ensure!(body.len() >= PREFIX, "{} bytes are no message", body.len());
    Ok(M::decode(body.slice(PREFIX..))?)
}
