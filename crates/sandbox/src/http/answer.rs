//! Answers: bodies and their headers.

use std::{convert::Infallible, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::api::{Object, Page, Refusal};

/// The error that cuts a connection while an answer is being sent.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the connection is cut by a fault")]
pub struct Cut;

/// The body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Cut>;

/// An answer.
pub type Answer = Response<Body>;

/// The number of bytes of a list that are assembled at once.
const PIECE: usize = 128 * 1024;
/// The place of the number in a part of an endless answer.
const NUMBER: &str = "{number}";

pub(super) fn json_answer(code: u16, value: &impl Serialize) -> Answer {
    // Serializing can't fail, since all maps have strings as keys.
    typed(code, "application/json", Bytes::from(serde_json::to_vec(value).unwrap_or_default()))
}

pub(super) fn refusal_answer(refusal: &Refusal) -> Answer {
    let mut answer = json_answer(refusal.code, &refusal.status());
    let seconds = refusal.details.as_ref().and_then(|details| details["retryAfterSeconds"].as_u64());
    if let Some(seconds) = seconds {
        answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    answer
}

pub(super) fn text_answer(code: u16, text: &'static str) -> Answer {
    typed(code, "text/plain; charset=utf-8", Bytes::from_static(text.as_bytes()))
}

/// Returns the answer for a path that doesn't exist.
pub(super) fn nowhere() -> Answer {
    text_answer(404, "404 page not found\n")
}

pub(super) fn typed(code: u16, content_type: &'static str, body: Bytes) -> Answer {
    with_body(code, content_type, Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync())
}

fn with_body(code: u16, content_type: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    answer
}

pub(super) fn stream_answer(pieces: impl futures::Stream<Item = Result<Bytes, Cut>> + Send + 'static) -> Answer {
    use futures::StreamExt;
    let frames = pieces.map(|piece| piece.map(Frame::data));
    with_body(200, "application/json", StreamBody::new(frames).boxed_unsync())
}

/// Returns an answer of an opening and then of parts without end, each with its number, until the gate opens.
pub(super) fn endless_answer(opening: &[u8], part: Arc<str>, gate: watch::Receiver<bool>) -> Answer {
    let pieces = stream::unfold((BytesMut::from(opening), 0_u64), move |(mut piece, mut number)| {
        let is_over = *gate.borrow();
        let part = Arc::clone(&part);
        async move {
            if is_over {
                return None;
            }
            piece.reserve(PIECE);
            while piece.len() < PIECE {
                number += 1;
                piece.extend_from_slice(part.replace(NUMBER, &number.to_string()).as_bytes());
            }
            Some((Ok(piece.freeze()), (BytesMut::new(), number)))
        }
    });
    stream_answer(pieces)
}

/// Returns the beginning of an object's JSON, up to its stored bytes.
pub(super) fn opening(api_version: &str, kind: &str) -> Bytes {
    Bytes::from(format!("{{\"apiVersion\":{},\"kind\":{},", json!(api_version), json!(kind)))
}

pub(super) fn object_answer(api_version: &str, kind: &str, object: &Object) -> Answer {
    let mut body = BytesMut::from(opening(api_version, kind).as_ref());
    object.write_tail(&mut body);
    typed(200, "application/json", body.freeze())
}

/// Returns an answer of a list, which is assembled piece by piece while it is sent.
pub(super) fn list_answer(page: Page) -> Answer {
    let target = &page.target;
    let api_version = target.api_version();
    let mut head = BytesMut::from(opening(&api_version, &target.spec.list_kind).as_ref());
    head.extend_from_slice(format!("\"metadata\":{},\"items\":[", list_metadata(&page)).as_bytes());
    // As on a real server, the items of core kinds omit their kind.
    let item =
        if target.spec.rules.strategic { Bytes::from_static(b"{") } else { opening(&api_version, &target.spec.kind) };
    let objects = page.objects.into_iter();
    stream_answer(stream::unfold(Some((head, objects)), move |state| {
        let item = item.clone();
        async move {
            let (piece, mut objects) = state?;
            let (piece, more) = fill(piece, &item, &mut objects);
            Some((Ok(piece), more.then(|| (BytesMut::from(&b","[..]), objects))))
        }
    }))
}

fn fill(mut piece: BytesMut, item: &Bytes, objects: &mut std::vec::IntoIter<Arc<Object>>) -> (Bytes, bool) {
    piece.reserve(PIECE);
    while let Some(object) = objects.next() {
        piece.extend_from_slice(item);
        object.write_tail(&mut piece);
        if objects.len() == 0 {
            break;
        }
        if piece.len() >= PIECE {
            return (piece.freeze(), true);
        }
        piece.extend_from_slice(b",");
    }
    piece.extend_from_slice(b"]}\n");
    (piece.freeze(), false)
}

pub(super) fn list_metadata(page: &Page) -> Value {
    let mut metadata = json!({"resourceVersion": page.revision.to_string()});
    if let Some(token) = &page.token {
        metadata["continue"] = json!(token);
    }
    if let Some(remaining) = page.remaining {
        metadata["remainingItemCount"] = json!(remaining);
    }
    metadata
}
