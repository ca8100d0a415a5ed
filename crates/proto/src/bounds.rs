//! The bounds of what a request decodes to. An empty message takes two bytes on the wire and a hundred times as many in
//! memory, so a request's messages are counted in one pass before they are decoded. It must allocate nothing.

use prost::{Message, bytes::Bytes};
use tonic::Status;

use super::*;

/// The maximum number of messages within a request: its Nodes.
const MOST_MESSAGES: usize = 10_000;
/// The number of labels and annotations that a request of any length may have in all.
const ALLOWED_PAIRS: usize = 10_000;
/// The minimum length of a label or an annotation beyond these, on average and in bytes. One of Kubernetes has more.
const BYTES_OF_A_PAIR: usize = 16;
/// The maximum number of labels and annotations of a request of any length.
const MOST_PAIRS: usize = 250_000;

/// The fields of a message that hold messages or the entries of a map, by number, with the fields of these.
#[derive(Clone, Copy, Debug)]
pub struct Shape(pub &'static [(u64, Shape)]);

/// A message without such a field.
pub const PLAIN: Shape = Shape(&[]);

/// A Node: its labels and its annotations.
const NODE: Shape = Shape(&[(3, PLAIN), (4, PLAIN)]);

/// A message that was refused before it was decoded.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Undecodable {
    /// It has more messages at some depth than it may have.
    TooMany,
    /// It isn't a message.
    Malformed,
}

/// A message that is decoded within bounds.
pub trait Bounded: Message + Default {
    /// The fields that are counted; `None` for an answer, which comes from this program itself.
    const SHAPE: Option<Shape>;
}

/// Decodes a message within its bounds.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` if it has more messages, labels and annotations than a request may have, and `INTERNAL` if it
/// isn't such a message, as gRPC has it.
pub fn decode<M: Bounded>(message: Bytes) -> Result<M, Status> {
    if let Some(shape) = M::SHAPE {
        let pairs = ALLOWED_PAIRS.saturating_add(message.len() / BYTES_OF_A_PAIR).min(MOST_PAIRS);
        shape.check(&message, &mut [MOST_MESSAGES, pairs]).map_err(|error| match error {
            Undecodable::TooMany => Status::resource_exhausted(format!(
                "the request has more than {MOST_MESSAGES} Nodes, or more than {pairs} labels and annotations for its \
                 length; nothing was changed: name fewer Nodes in a call"
            )),
            Undecodable::Malformed => Status::internal("the request is no encoded message of this RPC"),
        })?;
    }
    M::decode(message).map_err(|error| Status::internal(error.to_string()))
}

impl Shape {
    /// Counts the messages within a message, by depth. The last number is that of all deeper ones.
    ///
    /// # Errors
    /// If there are more than `left` allows, or the bytes aren't a message.
    pub fn check(self, message: &[u8], left: &mut [usize]) -> Result<(), Undecodable> {
        let mut rest = message;
        while !rest.is_empty() {
            let Some((number, content)) = next_field(&mut rest).ok_or(Undecodable::Malformed)? else { continue };
            let Some((_, shape)) = self.0.iter().find(|(known, _)| *known == number) else { continue };
            let first = left.first_mut().ok_or(Undecodable::TooMany)?;
            *first = first.checked_sub(1).ok_or(Undecodable::TooMany)?;
            let deeper = if left.len() > 1 { &mut left[1..] } else { &mut *left };
            shape.check(content, deeper)?;
        }
        Ok(())
    }
}

/// Reads a field. Returns its number and content if it has a length, and the outer `None` if the bytes aren't a field.
fn next_field<'a>(rest: &mut &'a [u8]) -> Option<Option<(u64, &'a [u8])>> {
    let key = varint(rest)?;
    match key & 7 {
        0 => drop(varint(rest)?),
        1 => drop(take(rest, 8)?),
        2 => {
            let length = usize::try_from(varint(rest)?).ok()?;
            return take(rest, length).map(|content| Some((key >> 3, content)));
        }
        // The fields of a group are read as those of the message around it.
        3 | 4 => {}
        5 => drop(take(rest, 4)?),
        _ => return None,
    }
    Some(None)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    prost::encoding::decode_varint(rest).ok()
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (content, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(content)
}

macro_rules! bounded {
    ($($message:ident $shape:expr;)*) => {
        $(impl Bounded for $message {
            const SHAPE: Option<Shape> = $shape;
        })*
    };
}

bounded! {
    NodeGroupsRequest Some(PLAIN);
    NodeGroupForNodeRequest Some(Shape(&[(1, NODE)]));
    PricingNodePriceRequest Some(Shape(&[(1, NODE)]));
    PricingPodPriceRequest Some(PLAIN);
    GpuLabelRequest Some(PLAIN);
    GetAvailableGpuTypesRequest Some(PLAIN);
    CleanupRequest Some(PLAIN);
    RefreshRequest Some(PLAIN);
    NodeGroupTargetSizeRequest Some(PLAIN);
    NodeGroupIncreaseSizeRequest Some(PLAIN);
    NodeGroupDeleteNodesRequest Some(Shape(&[(1, NODE)]));
    NodeGroupDecreaseTargetSizeRequest Some(PLAIN);
    NodeGroupNodesRequest Some(PLAIN);
    NodeGroupTemplateNodeInfoRequest Some(PLAIN);
    NodeGroupAutoscalingOptionsRequest Some(PLAIN);
    NodeGroupsResponse None;
    NodeGroupForNodeResponse None;
    PricingNodePriceResponse None;
    PricingPodPriceResponse None;
    GpuLabelResponse None;
    GetAvailableGpuTypesResponse None;
    CleanupResponse None;
    RefreshResponse None;
    NodeGroupTargetSizeResponse None;
    NodeGroupIncreaseSizeResponse None;
    NodeGroupDeleteNodesResponse None;
    NodeGroupDecreaseTargetSizeResponse None;
    NodeGroupNodesResponse None;
    NodeGroupTemplateNodeInfoResponse None;
    NodeGroupAutoscalingOptionsResponse None;
}
