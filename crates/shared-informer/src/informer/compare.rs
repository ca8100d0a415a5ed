//! A comparison of the two parsers for the bytes of a watch, for tests and fuzz targets. No informer uses it.

use std::{fmt, sync::Arc, time::Duration};

use futures::io::{BufReader, Cursor};
use tokio::time::Instant;

use super::{backoff::after, frames::Frames, wire::Decoder};
use crate::{intern::Interner, projection::Projection};

/// The events of a watch, as text.
#[derive(Debug, PartialEq, Eq)]
pub struct ReadFrames {
    /// Each event up to the first failure, then the failure or the end.
    pub found: Vec<String>,
    /// The number of batches in which events were returned.
    pub pages: usize,
    /// The number of bytes that were parsed one by one.
    pub parsed_bytewise: usize,
}

/// Reads the body of a watch as an informer does, in parts of `part` bytes, up to its end or first failure.
/// `carefully` parses all of it byte by byte. An event of `longest` bytes is a failure.
pub async fn read_frames<T: fmt::Debug>(
    body: &[u8],
    (part, longest): (usize, usize),
    projection: &Projection<T>,
    carefully: bool,
) -> ReadFrames {
    let decoder = Decoder { projection: projection.clone(), texts: Arc::new(Interner::default()), secret: false };
    let frames = Frames::new(BufReader::with_capacity(part, Cursor::new(body)), longest);
    let mut frames = if carefully { frames.bytewise() } else { frames };
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let deadline = after(Instant::now(), Duration::MAX);
        match frames.next_batch(deadline, &decoder, "widgets").await {
            Ok(Ok(page)) if page.is_empty() => break found.push("the end".to_owned()),
            Ok(Ok(page)) => found.extend(page.iter().map(|frame| format!("{frame:?}"))),
            Ok(Err(failure)) => break found.push(format!("{failure:?}")),
            Err(elapsed) => break found.push(elapsed.to_string()),
        }
        pages += 1;
    }
    ReadFrames { found, pages, parsed_bytewise: frames.parsed_bytewise() }
}
