//! Splits a text into documents and parses each alone, so that a broken document doesn't affect those after it, as it
//! would in a parser of the whole stream.

use serde::Deserialize as _;
use serde_json::Value;

/// The number of broken documents of a text for which a reason is given. Each reason takes another parse, with
/// everything before the document.
const REASONS: usize = 100;

/// A document: the line where it begins, from 1, and its value or the reason why it has none.
pub(in crate::cli::explain) struct Document {
    pub(in crate::cli::explain) line: usize,
    pub(in crate::cli::explain) value: Result<Value, Broken>,
}

/// The reason why a document has no value.
#[derive(Debug, Eq, PartialEq)]
pub(in crate::cli::explain) struct Broken {
    pub(in crate::cli::explain) why: String,
    /// True if it has the braces of a template of Helm or another program, and so isn't meant to be parsed yet.
    pub(in crate::cli::explain) is_template: bool,
}

/// Returns the documents of a text, without empty ones. JSON is recognized by its first character; a text that begins
/// with a brace and isn't JSON is parsed as YAML.
pub(in crate::cli::explain) fn documents(text: &str) -> Vec<Document> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with(['{', '[']) {
        let values: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text).into_iter().collect();
        if let Ok(values) = values {
            return values.into_iter().map(|value| Document { line: 1, value: Ok(value) }).collect();
        }
    }
    let mut reasons = REASONS;
    parts(text)
        .into_iter()
        .filter_map(|(line, part)| match yaml(&part) {
            Ok(Value::Null) => None,
            value => Some(Document { line, value: value.map_err(|_| broken(&part, line, &mut reasons)) }),
        })
        .collect()
}

fn broken(part: &str, line: usize, reasons: &mut usize) -> Broken {
    let is_template = part.contains("{{") && part.contains("}}");
    let Some(left) = reasons.checked_sub(1) else {
        return Broken { why: "not YAML, like earlier documents here".to_owned(), is_template };
    };
    *reasons = left;
    // The second parse is padded with newlines, so that the error names the line in the whole text.
    let padded = format!("{}{part}", "\n".repeat(line - 1));
    let why = yaml(&padded).err().unwrap_or_default();
    let hint = if is_template { " (a template? render it first, as helm template does)" } else { "" };
    Broken { why: format!("it isn't YAML: {why}{hint}"), is_template }
}

fn yaml(part: &str) -> Result<Value, String> {
    let error = |error: serde_yaml::Error| error.to_string();
    let mut value = serde_yaml::Value::deserialize(serde_yaml::Deserializer::from_str(part)).map_err(error)?;
    value.apply_merge().map_err(error)?;
    // JSON has only string keys.
    serde_json::to_value(value).map_err(|error| error.to_string())
}

/// Returns the documents of a YAML stream, each with the line where it begins. A line of three dashes always
/// separates documents, even within a string (YAML 1.2, 9.1.2), so they can be split without parsing.
fn parts(text: &str) -> Vec<(usize, String)> {
    let mut parts = vec![(1, String::new())];
    let mut is_empty = true;
    for (number, line) in (1..).zip(text.lines()) {
        let marker = |marker| line.strip_prefix(marker).filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        if let Some(rest) = marker("---") {
            // The rest of the line belongs to the document.
            parts.push((number, format!("   {rest}\n")));
            is_empty = is_blank(rest);
        } else if marker("...").is_some() {
            parts.push((number + 1, String::new()));
            is_empty = true;
        } else if let Some((_, part)) = parts.last_mut() {
            // A directive comes before the dashes of its document, where only comments are allowed.
            let is_directive = is_empty && line.starts_with('%');
            is_empty = is_empty && (is_directive || is_blank(line));
            part.push_str(if is_directive { "" } else { line });
            part.push('\n');
        }
    }
    // A document begins at its first line with content.
    let blanks = |part: &str| part.lines().take_while(|line| is_blank(line)).count();
    parts.retain(|(_, part)| blanks(part) < part.lines().count());
    parts.into_iter().map(|(line, part)| (line + blanks(&part), skip(&part, blanks(&part)))).collect()
}

fn skip(part: &str, lines: usize) -> String {
    part.split_inclusive('\n').skip(lines).collect()
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Vec<(usize, Value)> {
        documents(text).into_iter().map(|document| (document.line, document.value.unwrap())).collect()
    }

    #[rstest]
    #[case::one("a: 1", &[(1, json!({"a": 1}))])]
    #[case::several("a: 1\n---\nb: 2\n", &[(1, json!({"a": 1})), (3, json!({"b": 2}))])]
    #[case::marked_from_the_start("---\n# one\na: 1\n---\n", &[(3, json!({"a": 1}))])]
    #[case::empty_ones("---\n---\n# none\n---\n\n---\na: 1", &[(7, json!({"a": 1}))])]
    #[case::a_comment_behind_the_dashes("--- # one\na: 1", &[(2, json!({"a": 1}))])]
    #[case::a_value_behind_the_dashes("--- {a: 1}\n--- {b: 2}", &[(1, json!({"a": 1})), (2, json!({"b": 2}))])]
    #[case::an_end("a: 1\n...\nb: 2\n", &[(1, json!({"a": 1})), (3, json!({"b": 2}))])]
    #[case::a_directive("%YAML 1.2\n---\na: 1\n", &[(3, json!({"a": 1}))])]
    #[case::carriage_returns("a: 1\r\n---\r\nb: 2\r\n", &[(1, json!({"a": 1})), (3, json!({"b": 2}))])]
    #[case::dashes_in_a_text("a: |\n  ---\n  b\n", &[(1, json!({"a": "---\nb\n"}))])]
    #[case::a_byte_order_mark("\u{feff}a: 1", &[(1, json!({"a": 1}))])]
    #[case::merged_keys("x: &x {a: 1}\ny:\n  <<: *x\n  b: 2\n", &[(1, json!({"x": {"a": 1}, "y": {"a": 1, "b": 2}}))])]
    #[case::json("{\"a\":\t1}", &[(1, json!({"a": 1}))])]
    #[case::json_after_json("{\"a\": 1}\n{\"b\": 2}", &[(1, json!({"a": 1})), (1, json!({"b": 2}))])]
    #[case::yaml_that_begins_with_a_brace("{a: 1}\n---\nb: 2\n", &[(1, json!({"a": 1})), (3, json!({"b": 2}))])]
    #[case::nothing("\n# none\n", &[])]
    fn a_text_holds(#[case] text: &str, #[case] expected: &[(usize, Value)]) {
        assert_eq!(read(text), expected);
    }

    #[test]
    fn a_broken_document_does_not_take_others_along() {
        let all = documents("a: 1\n---\nb:\n  - c\n d: [\n---\ne: 2\n");
        assert_eq!(all.len(), 3);
        assert_eq!(all[0].value, Ok(json!({"a": 1})));
        let why = all[1].value.as_ref().unwrap_err();
        assert!(why.why.contains("line 5") && !why.is_template, "{why:?}");
        assert_eq!(all[2].value, Ok(json!({"e": 2})));
    }

    #[rstest]
    #[case::a_line_of_its_own("{{- if .Values.on }}\na: 1\n{{- end }}\n")]
    #[case::a_value("replicas: {{ .Values.replicas }}\n")]
    fn a_template_is_reported_as_such(#[case] text: &str) {
        let all = documents(text);
        let why = all[0].value.as_ref().unwrap_err();
        assert!(why.is_template && why.why.contains("helm template"), "{why:?}");
    }

    /// Each of these would take hours, or all of the memory.
    #[rstest]
    #[case::aliases_of_aliases((1..30).fold("a0: &a0 1\n".to_owned(), |text, n| format!("{text}a{n}: &a{n} [*a{m}, *a{m}]\n", m = n - 1)))]
    #[case::broken_documents("---\n[\n".repeat(30_000))]
    #[case::directives("%\n".repeat(200_000) + "[")]
    fn a_text_that_grows_is_refused_in_time(#[case] text: String) {
        let all = documents(&text);
        assert!(!all.is_empty() && all.iter().all(|document| document.value.is_err()));
    }

    #[test]
    fn aliases_of_usual_size_are_read() {
        let items = "  - *a\n".repeat(1_000);
        let all = read(&format!("a: &a {{b: 1, c: [d, e]}}\nall:\n{items}"));
        assert_eq!(all[0].1["all"][999], json!({"b": 1, "c": ["d", "e"]}));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), lines in prop::collection::vec("[-#%.a: {}\\[\\]|&*<]{0,6}", 0..8)) {
            let _ = documents(&text);
            let _ = documents(&lines.join("\n"));
        }
    }
}
