//! Tests that a watch has the same events line by line and byte by byte, in whatever parts its body comes.

use proptest::{collection::vec, prelude::*, sample::Index as Pick};

use super::*;
use crate::{ReadFrames, read_frames};

const LONGEST: usize = 4 << 10;

/// Parses a body in parts of this length. An object whose size is a string doesn't decode.
fn read(body: &[u8], part: usize, carefully: bool) -> ReadFrames {
    let sizes = Projection::new("sizes", |_, value: Value| match value.pointer("/spec/size") {
        Some(Value::String(_)) => Err("the size is a string".to_owned()),
        _ => Ok(value),
    });
    let read = read_frames(body, (part, LONGEST), &sizes, carefully);
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(read)
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
    /// Replaces a text.
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
            (r#""metadata":"#, r#""metadata":{"name":"other"},"metadata":"#),
            (r#""spec":"#, r#""spec":7,"spec":"#),
            (r#""spec":"#, r#""huge":1e999,"spec":"#),
            (r#""resourceVersion":""#, r#""resourceVersion":7,"x":""#),
            (r#""name":"#, r#""title":"#),
            (r#""size":"#, r#""size":"3","x":"#),
        ])
        .prop_map(|(from, to)| Mutation::Replaced(from, to)),
    ]
}

fn event(kind: &str, object: &Value, mutation: &Mutation) -> Vec<u8> {
    let event = json!({ "type": kind, "object": object });
    // An API server writes the type first.
    let line = format!(r#"{{"type":"{kind}","object":{object}}}"#);
    let mut text = line.clone().into_bytes();
    let range = |at: &Pick, length: usize| at.index(line.len())..(at.index(line.len()) + length).min(line.len());
    match mutation {
        Mutation::None => {}
        Mutation::Byte(at, byte) => text[at.index(line.len())] = *byte,
        Mutation::Twice(at, length) => {
            let again = text[range(at, *length)].to_vec();
            text.splice(at.index(line.len())..at.index(line.len()), again);
        }
        Mutation::Missing(at, length) => drop(text.drain(range(at, *length))),
        Mutation::Indented => text = serde_json::to_vec_pretty(&event).unwrap(),
        Mutation::Replaced(from, to) => text = line.replacen(from, to, 1).into_bytes(),
    }
    text
}

fn object(number: usize) -> Value {
    let mut object = widget(&format!("one/{number}"), 10, 1);
    let notes = ["plain", "a}{\"b\"", "say \"}\" ", "c:\\", "line\nbreak", "ä\u{7}€", ""];
    object["metadata"]["annotations"] = json!({ "note": notes[number % notes.len()], "empty": {}, "list": [[], null] });
    object
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn both_ways_find_the_same_in_events_of_any_form(
        events in vec((0..7_usize, 0..6_usize, mutation(), 0..6_usize), 1..8),
        part in prop_oneof![1..64_usize, 64..2_000_usize, Just(1 << 20)],
    ) {
        let mut body = Vec::new();
        for (number, kind, mutation, separator) in &events {
            let kind = ["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "OTHER"][*kind];
            body.extend(event(kind, &object(*number), mutation));
            body.extend(["\n", "\n", "\n", "", "\r\n", " \n\n\t"][*separator].as_bytes());
        }
        // The reference is the whole body at once, byte by byte.
        let whole_body = read(&body, body.len(), true).found;
        prop_assert_eq!(&read(&body, part, false).found, &whole_body);
        prop_assert_eq!(&read(&body, part, true).found, &whole_body);
    }
}

fn line(kind: &str, name: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{{\"metadata\":{{\"name\":\"{name}\"}}}}}}\n")
}

/// An API server writes each event in a chunk of its own.
#[test]
fn events_in_chunks_of_their_own_come_together_after_an_odd_one_too() {
    const CHUNK: usize = 200;
    let event = |number: usize| {
        // A space before its first field is unusual.
        let event = line("ADDED", &number.to_string()).replacen('{', "{ ", usize::from(number == 1));
        format!("{:<width$}\n", event.trim_end(), width = CHUNK - 1)
    };
    let body = (0..10).map(event).collect::<String>();
    let ReadFrames { found, pages, parsed_bytewise } = read(body.as_bytes(), CHUNK, false);
    assert_eq!((found.len(), pages), (11, 1), "{found:?}");
    assert!((1..=CHUNK).contains(&parsed_bytewise), "{parsed_bytewise} bytes are parsed one by one");
    // The rest of a line makes it an event.
    let body = line("ADDED", &"a".repeat(99));
    let ReadFrames { found, parsed_bytewise, .. } = read(body.as_bytes(), body.len() / 2 + 1, false);
    assert_eq!((found.len(), parsed_bytewise), (2, body.len() / 2 + 1));
}

#[rstest::rstest]
#[case::garbled("{\"type\":1}\n", "Garbled")]
#[case::too_long(&line("ADDED", &"c".repeat(LONGEST)), "BeyondLimit")]
fn events_before_a_failure_are_returned_in_whatever_parts_they_come(#[case] bad: &str, #[case] failure: &str) {
    let body = [&line("ADDED", "a"), &line("ADDED", "b"), bad, &line("ADDED", "c")].concat();
    for (part, carefully) in [(20, false), (line("ADDED", "a").len(), false), (1 << 20, false), (1 << 20, true)] {
        let found = read(body.as_bytes(), part, carefully).found;
        assert_eq!(found.len(), 3, "in parts of {part}: {found:?}");
        assert!(found[..2].iter().all(|frame| frame.starts_with("Add")) && found[2].starts_with(failure), "{found:?}");
    }
}

#[test]
fn a_batch_has_limits_and_ends_with_a_bookmark() {
    let (added, bookmark) = (line("ADDED", "a"), line("BOOKMARK", "a"));
    let ReadFrames { found, pages, .. } = read(added.repeat(300).as_bytes(), 1 << 20, false);
    assert_eq!((found.len(), pages), (301, 3));
    for part in [added.len(), 1 << 20] {
        let ReadFrames { found, pages, .. } = read([&*added, &bookmark, &added].concat().as_bytes(), part, false);
        assert_eq!((found.len(), pages), (4, 2), "in parts of {part}: {found:?}");
    }
}

#[test]
fn an_event_that_is_too_long_is_one_either_way() {
    let long = |length: usize| line("ADDED", &format!("a\",\"x\":\"{}", "x".repeat(length)));
    let fits = LONGEST - long(0).trim_end().len();
    for length in [fits - 1, fits, fits + 1] {
        for carefully in [false, true] {
            let found = read(long(length).as_bytes(), 1 << 20, carefully).found;
            assert_eq!(found.len(), if length < fits { 2 } else { 1 }, "{length}: {found:?}");
        }
    }
}
