//! Markdown tables, as far as the reference pages use them.

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row<'a> {
    pub(super) line: usize,
    pub(super) heading: &'a str,
    pub(super) cells: Vec<String>,
}

/// The rows of every table, without headers and rules; code blocks contain no tables.
pub(super) fn rows(markdown: &str) -> Vec<Row<'_>> {
    let lines: Vec<&str> = markdown.lines().map(str::trim).collect();
    let (mut heading, mut fenced, mut rows) = ("", false, Vec::new());
    for (index, line) in lines.iter().enumerate() {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        if line.starts_with('#') {
            heading = line.trim_start_matches('#').trim();
        }
        let is_header = lines.get(index + 1).is_some_and(|next| is_rule(next));
        if line.starts_with('|') && !is_rule(line) && !is_header {
            rows.push(Row { line: index + 1, heading, cells: cells(line) });
        }
    }
    rows
}

fn is_rule(line: &str) -> bool {
    line.starts_with('|') && line.contains('-') && line.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '))
}

/// The cells of a row; `\|` is a bar inside a cell.
fn cells(line: &str) -> Vec<String> {
    let mut cells = vec![String::new()];
    let mut escaped = false;
    for character in line.trim_matches('|').chars() {
        match character {
            '|' if !escaped => cells.push(String::new()),
            _ => {
                if let Some(cell) = cells.last_mut() {
                    cell.push(character);
                }
            }
        }
        escaped = character == '\\';
    }
    cells.into_iter().map(|cell| cell.replace("\\|", "|").trim().to_owned()).collect()
}

/// The texts between backticks in a cell.
pub(super) fn code_spans(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).filter(|span| !span.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_know_their_line_and_heading() {
        let page = "# Page\n\n## One\n| name | use |\n|---|:--|\n| `a` | x \\| y |\n```\n| no | row |\n```\n## Two\n\
            |n|\n|-|\n|`b`|\n";
        let rows = rows(page);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].line, rows[0].heading, rows[0].cells[1].as_str()), (6, "One", "x | y"));
        assert_eq!((rows[1].heading, rows[1].cells[0].as_str()), ("Two", "`b`"));
    }

    #[test]
    fn spans_are_what_backticks_enclose() {
        assert_eq!(code_spans("`a::b`, then `c`"), ["a::b", "c"]);
        assert_eq!(code_spans("none"), [""; 0]);
    }
}
