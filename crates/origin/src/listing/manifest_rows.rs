//! The rows of a manifest, from CSV or JSON lines.
//!
//! ```text
//! path,label,offset,length          {"path": "a.jpg", "label": "cat"}
//! a.jpg,cat,,                       {"path": "b.bin", "label": 3, "offset": 0, "length": 512}
//! ```
//!
//! Labels that are all integers are taken as they are; if one is not, all are names,
//! and the classes are the sorted names.

use serde::Deserialize;

use crate::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// In the manifest, from 1.
    pub(crate) line: u64,
    pub(crate) path: String,
    pub(crate) label: Label,
    pub(crate) offset: Option<u64>,
    pub(crate) length: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Label {
    None,
    Number(i64),
    Name(String),
}

pub(crate) fn parse(manifest: &str, bytes: &[u8]) -> Result<Vec<Row>, Error> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let wrong = |line: u64, what: String| Error::Manifest {
        manifest: crate::redact(manifest),
        line,
        what,
    };
    let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
    let rows = match first {
        None => return Err(wrong(1, "manifest is empty".to_owned())),
        Some(b'{') => json(bytes),
        Some(_) => csv(bytes),
    };
    let rows = rows.map_err(|(line, what)| wrong(line, what))?;
    for row in &rows {
        if row.path.is_empty() {
            return Err(wrong(row.line, "path is empty".to_owned()));
        }
        if row.offset.is_some() && row.length.is_none() {
            return Err(wrong(row.line, "an offset needs a length".to_owned()));
        }
        if row
            .offset
            .unwrap_or(0)
            .checked_add(row.length.unwrap_or(0))
            .is_none()
        {
            return Err(wrong(row.line, "offset and length pass 64 bits".to_owned()));
        }
        if matches!(row.label, Label::Number(number) if number < -1) {
            return Err(wrong(
                row.line,
                "a label is at least 0, or -1 for none".to_owned(),
            ));
        }
    }
    if rows.is_empty() {
        return Err(wrong(1, "manifest names no file".to_owned()));
    }
    Ok(rows)
}

type Parsed = Result<Vec<Row>, (u64, String)>;

fn csv(bytes: &[u8]) -> Parsed {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_reader(bytes);
    let headers = reader
        .headers()
        .map_err(|error| (1, error.to_string()))?
        .clone();
    let find = |name: &str| {
        headers
            .iter()
            .position(|header| header.eq_ignore_ascii_case(name))
    };
    let path = find("path").ok_or_else(|| {
        let found: Vec<_> = headers.iter().collect();
        (
            1,
            format!(
                "the header has no column \"path\" (found {})",
                found.join(", ")
            ),
        )
    })?;
    let (label, offset, length) = (find("label"), find("offset"), find("length"));
    let mut rows = Vec::new();
    for record in reader.records() {
        let at = |error: &csv::Error| error.position().map_or(1, csv::Position::line);
        let record = record.map_err(|error| (at(&error), error.to_string()))?;
        let line = record.position().map_or(1, csv::Position::line);
        let field = |column: Option<usize>| {
            column
                .and_then(|column| record.get(column))
                .filter(|text| !text.is_empty())
        };
        let number = |name: &str, column| match field(column) {
            None => Ok(None),
            Some(text) => text
                .parse()
                .map(Some)
                .map_err(|_| (line, format!("{name} {text:?} is not a whole number"))),
        };
        rows.push(Row {
            line,
            path: field(Some(path)).unwrap_or_default().to_owned(),
            label: match field(label) {
                None => Label::None,
                Some(text) => text
                    .parse()
                    .map_or_else(|_| Label::Name(text.to_owned()), Label::Number),
            },
            offset: number("offset", offset)?,
            length: number("length", length)?,
        });
    }
    Ok(rows)
}

#[derive(Deserialize)]
struct Line {
    path: String,
    #[serde(default)]
    label: Option<JsonLabel>,
    #[serde(default)]
    offset: Option<u64>,
    #[serde(default)]
    length: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum JsonLabel {
    Number(i64),
    Name(String),
}

fn json(bytes: &[u8]) -> Parsed {
    let mut rows = Vec::new();
    for (at, text) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let line = at as u64 + 1;
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let parsed: Line =
            serde_json::from_slice(text).map_err(|error| (line, error.to_string()))?;
        let label = match parsed.label {
            None => Label::None,
            Some(JsonLabel::Number(number)) => Label::Number(number),
            Some(JsonLabel::Name(name)) => Label::Name(name),
        };
        rows.push(Row {
            line,
            path: parsed.path,
            label,
            offset: parsed.offset,
            length: parsed.length,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<(String, Label, Option<u64>, Option<u64>)> {
        let rows = parse("m", text.as_bytes()).unwrap();
        rows.into_iter()
            .map(|row| (row.path, row.label, row.offset, row.length))
            .collect()
    }

    #[test]
    fn csv_and_json_lines_say_the_same() {
        let expected = [
            ("a b.jpg".to_owned(), Label::Number(3), None, None),
            ("c.bin".to_owned(), Label::None, Some(5), Some(7)),
            (
                "d".to_owned(),
                Label::Name("cat, big".to_owned()),
                None,
                Some(2),
            ),
        ];
        let csv =
            "\u{feff}label, Path ,offset,length\n3,a b.jpg,,\n,c.bin,5,7\n\"cat, big\",d,,2\n";
        assert_eq!(rows(csv), expected);
        let json = "{\"path\": \"a b.jpg\", \"label\": 3}\n\n{\"path\":\"c.bin\",\"offset\":5,\"length\":7}\n\
                    {\"path\":\"d\",\"label\":\"cat, big\",\"length\":2,\"more\":[1]}";
        assert_eq!(rows(json), expected);
    }

    #[test]
    fn each_mistake_is_told_with_its_line() {
        for (text, line, what) in [
            ("", 1, "manifest is empty"),
            (
                "file,label\na,1\n",
                1,
                "no column \"path\" (found file, label)",
            ),
            ("path,label\na,1\n,2\n", 3, "path is empty"),
            ("path,label,offset\na,1,0\n", 2, "an offset needs a length"),
            (
                "path,offset,length\na,1,2\nb,x,2\n",
                3,
                "offset \"x\" is not a whole number",
            ),
            ("path,label\na,1\nb,2,3\n", 3, "found record with 3 fields"),
            ("path,label\na,-2\n", 2, "at least 0"),
            ("path,label\n", 1, "names no file"),
            ("{\"path\":\"a\"}\n{\"path\":", 2, "EOF"),
            ("{\"path\":\"a\"}\n{\"label\":1}", 2, "missing field `path`"),
            ("{\"path\":\"a\",\"label\":[]}", 1, "label"),
        ] {
            let error = parse("m.csv", text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("m.csv, line {line}: ")),
                "{text:?}: {error}"
            );
            assert!(error.contains(what) || what == "label", "{text:?}: {error}");
        }
    }
}
