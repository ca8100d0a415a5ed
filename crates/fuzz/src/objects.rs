//! Fuzzes objects and watches as an API server sends them, each decoded both ways: by one pass over the text, and
//! through a JSON tree.

use std::{fmt, str, sync::LazyLock};

use capi::{
    Cluster, Context, DEFAULT_GROUP, InfrastructureTemplate, Interner, Machine, Node, ScalableKind, ScalableResource,
};
use change_stream::changes::ObjectJson;
use serde_json::Value;
use shared_informer::{Projection, ReadFrames, read_frames};
use tokio::runtime::Runtime;

/// The limit of an event's length in bytes.
const LONGEST: usize = 1 << 10;

/// Decodes an object: the first byte chooses the kind, the others are its JSON. Both ways must agree, also on what
/// `watch` reads of it.
pub fn objects(data: &[u8]) {
    let Some((kind, json)) = data.split_first() else { return };
    let Ok(json) = str::from_utf8(json) else { return };
    // Of managed fields the careful path has another text, since it writes them anew.
    compare(&Projection::decoded("watch", |_, object: ObjectJson| Ok(object.value().clone())), json);
    let context = Context::new(DEFAULT_GROUP);
    match kind % 7 {
        0 => compare(&Machine::projection(&context), json),
        1 => compare(&Node::projection(&context), json),
        2 => compare(&Cluster::projection(), json),
        3 => compare(&InfrastructureTemplate::projection(), json),
        4 => compare(&ScalableResource::projection(ScalableKind::MachineDeployment, &context), json),
        5 => compare(&ScalableResource::projection(ScalableKind::MachineSet, &context), json),
        _ => compare(&ScalableResource::projection(ScalableKind::MachinePool, &context), json),
    }
}

fn compare<T: fmt::Debug + PartialEq>(projection: &Projection<T>, json: &str) {
    let texts = Interner::default();
    let careful = projection.read_carefully(json, &texts);
    let Some(quick) = projection.read_quickly(json, &texts) else { return };
    let careful = careful.expect("what one pass knows by name, the careful path does");
    assert_eq!(quick.metadata, careful.metadata);
    // An invalid field that isn't decoded affects the tree only.
    if careful.content.is_ok() || serde_json::from_str::<Value>(json).is_ok() {
        assert_eq!(quick.content, careful.content);
    }
}

/// Decodes a watch: the first byte sets the size of the chunks of its body, which is the rest. Line by line and byte by
/// byte it must have the same events.
pub fn watches(data: &[u8]) {
    let Some((part, body)) = data.split_first() else { return };
    let part = 1 + 16 * usize::from(*part);
    same_frames(&Machine::projection(&Context::new(DEFAULT_GROUP)), body, part);
    same_frames(&Projection::<Value>::serde(), body, part);
}

fn same_frames<T: fmt::Debug>(projection: &Projection<T>, body: &[u8], part: usize) {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));
    let read = |carefully| RUNTIME.block_on(read_frames(body, (part, LONGEST), projection, carefully));
    let (quick, careful): (ReadFrames, ReadFrames) = (read(false), read(true));
    assert_eq!(quick.found, careful.found);
}
