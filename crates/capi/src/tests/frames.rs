//! Tests that both parsers of a watch stream, the fast one and the byte-by-byte one, return the same events.

use std::{
    fmt::Debug,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use proptest::{collection::vec, prelude::*, sample::Index as Pick};
use serde::Deserialize as _;
use serde_json::{Value, json};
use shared_informer::{Projection, ReadFrames, read_frames};

use crate::{Context, DEFAULT_GROUP, Machine};

const LONGEST: usize = 32 << 10;

/// Returns a projection that keeps whole objects. An object whose `spec.replicas` is a string doesn't decode.
fn whole() -> Projection<Value> {
    Projection::new("whole", |_, value: Value| match value.pointer("/spec/replicas") {
        Some(Value::String(_)) => Err("spec.replicas is a text".to_owned()),
        _ => Ok(value),
    })
}

/// Real objects, as JSON.
static OBJECTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let files = [
        include_str!("../../../../tests/fixtures/steady/management-v1beta2.yaml"),
        include_str!("../../../../tests/fixtures/steady/workload-nodes.yaml"),
        include_str!("../../../../tests/fixtures/rollout/management-v1beta1.yaml"),
    ];
    let documents = files.into_iter().flat_map(serde_yaml::Deserializer::from_str);
    let objects = documents.flat_map(|document| {
        let document = Value::deserialize(document).unwrap();
        document["items"].as_array().cloned().unwrap_or_else(|| vec![document])
    });
    objects.map(|object| object.to_string()).collect()
});

/// Parses a body in chunks of `part` bytes.
fn read_as<T: Debug>(projection: &Projection<T>, body: &[u8], part: usize, carefully: bool) -> ReadFrames {
    let read = read_frames(body, (part, LONGEST), projection, carefully);
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(read)
}

fn read(body: &[u8], part: usize, carefully: bool) -> ReadFrames {
    read_as(&whole(), body, part, carefully)
}

#[derive(Clone, Debug)]
enum Mutation {
    None,
    /// Replaces a byte.
    Byte(Pick, u8),
    /// Repeats some bytes.
    Twice(Pick, usize),
    /// Removes some bytes.
    Missing(Pick, usize),
    /// Indents the event.
    Indented,
    /// Duplicates a field.
    Doubled(&'static str),
    /// Adds a number out of range.
    HugeNumber,
    /// Replaces a text with a number, or a number with a text.
    Replaced(&'static str, &'static str),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let byte = prop_oneof![any::<u8>(), prop::sample::select(b"\n\r{}[]\",:\\ 0".to_vec())];
    prop_oneof![
        6 => Just(Mutation::None),
        4 => (any::<Pick>(), byte).prop_map(|(at, byte)| Mutation::Byte(at, byte)),
        1 => (any::<Pick>(), 1..40_usize).prop_map(|(at, length)| Mutation::Twice(at, length)),
        2 => (any::<Pick>(), 1..40_usize).prop_map(|(at, length)| Mutation::Missing(at, length)),
        1 => Just(Mutation::Indented),
        2 => prop::sample::select(vec![
            r#""metadata":{"name":"other"},"#, r#""spec":{"replicas":"3"},"#, r#""spec":7,"#, r#""kind":"Other","#,
        ])
        .prop_map(Mutation::Doubled),
        1 => Just(Mutation::HugeNumber),
        1 => prop::sample::select(vec![
            (r#""resourceVersion":""#, r#""resourceVersion":7,"x":""#),
            (r#""name":"#, r#""title":"#),
            (r#""replicas":"#, r#""replicas":"3","x":"#),
        ])
        .prop_map(|(from, to)| Mutation::Replaced(from, to)),
    ]
}

fn event(kind: &str, object: &str, mutation: &Mutation) -> Vec<u8> {
    let object = match mutation {
        Mutation::Doubled(field) => format!("{{{field}{}", &object[1..]),
        Mutation::HugeNumber => format!("{{\"huge\":1e999,{}", &object[1..]),
        Mutation::Replaced(from, to) => object.replacen(from, to, 1),
        Mutation::None | Mutation::Byte(..) | Mutation::Twice(..) | Mutation::Missing(..) | Mutation::Indented => {
            object.to_owned()
        }
    };
    let text = format!("{{\"type\":\"{kind}\",\"object\":{object}}}");
    let mut event = match mutation {
        Mutation::Indented => {
            serde_json::to_string_pretty(&serde_json::from_str::<Value>(&text).unwrap()).unwrap().into_bytes()
        }
        _ => text.into_bytes(),
    };
    match mutation {
        Mutation::Byte(at, byte) => {
            let at = at.index(event.len());
            event[at] = *byte;
        }
        Mutation::Twice(at, length) => {
            let at = at.index(event.len());
            let again = event[at..(at + length).min(event.len())].to_vec();
            event.splice(at..at, again);
        }
        Mutation::Missing(at, length) => {
            let at = at.index(event.len());
            event.drain(at..(at + length).min(event.len()));
        }
        _ => {}
    }
    event
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn both_ways_find_the_same_in_events_of_any_form(
        events in vec((any::<Pick>(), 0..6_usize, mutation(), 0..6_usize), 1..8),
        part in prop_oneof![1..64_usize, 64..20_000_usize, Just(1 << 20)],
    ) {
        let objects = &*OBJECTS;
        let mut body = Vec::new();
        for (object, kind, mutation, separator) in &events {
            let kind = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "OTHER"][*kind];
            body.extend(event(kind, &objects[object.index(objects.len())], mutation));
            body.extend(["\n", "\n", "\n", "", "\r\n", " \n\n\t"][*separator].as_bytes());
        }
        // The reference is the whole body at once, byte by byte.
        let whole_body = read(&body, body.len(), true).found;
        prop_assert_eq!(&read(&body, part, false).found, &whole_body);
        prop_assert_eq!(&read(&body, part, true).found, &whole_body);
        let typed = Machine::projection(&Context::new(DEFAULT_GROUP));
        let whole_body = read_as(&typed, &body, body.len(), true).found;
        prop_assert_eq!(read_as(&typed, &body, part, false).found, whole_body);
    }
}

#[test]
fn events_as_a_real_api_server_writes_them_come_together_and_are_not_looked_at_byte_by_byte() {
    let objects = &*OBJECTS;
    let mut body = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        body.extend(event(["ADDED", "MODIFIED", "DELETED"][number % 3], object, &Mutation::None));
        body.push(b'\n');
    }
    let ReadFrames { found, pages, parsed_bytewise } = read(&body, body.len(), false);
    assert_eq!((found.len(), pages, parsed_bytewise), (objects.len() + 1, 1, 0), "what has come together is one page");
    assert!(objects.len() > 10 && found.iter().all(|frame| !frame.starts_with("Garbled")), "{found:?}");
}

/// An API server writes each event in a chunk of its own.
#[test]
fn events_in_chunks_of_their_own_come_together_after_an_odd_one_too() {
    const CHUNK: usize = 200;
    let event = |number: usize| {
        let event = format!(r#"{{"type":"ADDED","object":{{"metadata":{{"name":"{number}"}}}}}}"#);
        // A space before its first field is unusual.
        let odd = event.replacen('{', "{ ", usize::from(number == 1));
        format!("{odd:<width$}\n", width = CHUNK - 1)
    };
    let body = (0..10).map(event).collect::<String>();
    let ReadFrames { found, pages, parsed_bytewise } = read(body.as_bytes(), CHUNK, false);
    assert_eq!((found.len(), pages), (11, 1), "{found:?}");
    assert!((1..=CHUNK).contains(&parsed_bytewise), "{parsed_bytewise} bytes are parsed one by one");
}

#[test]
fn events_before_a_failure_are_returned_in_whatever_parts_they_come() {
    let line = |name: &str| format!("{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"name\":\"{name}\"}}}}}}\n");
    let bodies = [
        ([line("a"), line("b"), "{\"type\":1}\n".to_owned(), line("c")].concat(), "Garbled"),
        ([line("a"), line("b"), line(&"c".repeat(LONGEST))].concat(), "BeyondLimit"),
    ];
    for (body, failure) in bodies {
        for (part, carefully) in [(20, false), (line("a").len(), false), (1 << 20, false), (1 << 20, true)] {
            let found = read(body.as_bytes(), part, carefully).found;
            assert_eq!(found.len(), 3, "in parts of {part}: {found:?}");
            assert!(found[..2].iter().all(|frame| frame.starts_with("Add")), "{found:?}");
            assert!(found[2].starts_with(failure), "{found:?}");
        }
    }
}

#[test]
fn a_batch_has_limits_and_ends_with_a_bookmark() {
    let event = |kind: &str| format!("{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"name\":\"a\"}}}}}}\n");
    let body = event("ADDED").repeat(300);
    let ReadFrames { found, pages, .. } = read(body.as_bytes(), 1 << 20, false);
    assert_eq!((found.len(), pages), (301, 3));
    let body = [event("ADDED"), event("BOOKMARK"), event("ADDED")].concat();
    for part in [event("ADDED").len(), 1 << 20] {
        let ReadFrames { found, pages, .. } = read(body.as_bytes(), part, false);
        assert_eq!((found.len(), pages), (4, 2), "in parts of {part}: {found:?}");
    }
    // Some two megabytes in few parts.
    let long = json!({"metadata": {"name": "a"}, "spec": "x".repeat(LONGEST - 1_000)}).to_string();
    let body = format!("{{\"type\":\"ADDED\",\"object\":{long}}}\n").repeat(64);
    let ReadFrames { found, pages, .. } = read(body.as_bytes(), LONGEST, false);
    assert_eq!(found.len(), 65);
    assert!((2..6).contains(&pages), "{pages} batches of a megabyte");
}

#[test]
fn the_rest_of_a_line_makes_it_an_event() {
    let object = &OBJECTS[0];
    let body = [event("ADDED", object, &Mutation::None), b"\n".to_vec()].concat();
    let ReadFrames { found, parsed_bytewise, .. } = read(&body, body.len() / 2 + 1, false);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!(parsed_bytewise, body.len() / 2 + 1, "the second half isn't parsed byte by byte");
}

#[test]
fn an_event_whose_object_does_not_decode_is_found_by_its_line_and_read_once_either_way() {
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    let projection = Projection::<()>::new("counted", move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Err("it never decodes".to_owned())
    });
    let body = [event("ADDED", &OBJECTS[0], &Mutation::None), b"\n".to_vec()].concat();
    let ReadFrames { found, parsed_bytewise, .. } = read_as(&projection, &body, body.len(), false);
    assert!(found[0].contains("it never decodes"), "{found:?}");
    assert_eq!((parsed_bytewise, reads.load(Ordering::Relaxed)), (0, 2));
}

/// The error of an object that has no tree names a column.
#[test]
fn spaces_around_an_object_are_no_part_of_it() {
    for [before, after] in
        [["", ""], [" ", ""], ["", " "], ["\t\r", " \t"], ["\u{c}", ""], ["", "\u{c}"], ["\u{a0}", ""]]
    {
        for object in [r#"{"metadata":{"name":"a"},"x":1e999}"#, r#"{"metadata":{"name":"a"},"x":"\ud800"}"#, "{}", "7"]
        {
            let body = format!("{{\"type\":\"ADDED\",\"object\":{before}{object}{after}}}\n");
            let [by_line, bytewise] = [false, true].map(|carefully| read(body.as_bytes(), 1 << 20, carefully).found);
            assert_eq!(by_line, bytewise, "{body:?}");
        }
    }
}

#[test]
fn an_event_that_is_too_long_is_one_either_way() {
    let long = json!({"metadata": {"name": "a"}, "spec": "x".repeat(LONGEST)}).to_string();
    let fits = LONGEST - r#"{"type":"ADDED","object":{"metadata":{"name":"a"},"spec":""}}"#.len();
    for length in [fits - 1, fits, fits + 1] {
        let object = json!({"metadata": {"name": "a"}, "spec": "x".repeat(length)}).to_string();
        let body = [event("ADDED", &object, &Mutation::None), b"\n".to_vec()].concat();
        assert_eq!(read(&body, 1 << 20, false).found, read(&body, 1 << 20, true).found, "{length}");
        assert_eq!(read(&body, 1 << 20, false).found.len(), if length < fits { 2 } else { 1 }, "{length}");
    }
    let body = [event("ADDED", &long, &Mutation::None), b"\n".to_vec()].concat();
    assert!(read(&body, 1 << 20, false).found[0].contains("longer than"));
}
