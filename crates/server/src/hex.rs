//! Bytes as hexadecimal digits, two for each, in lower case.

/// As text.
pub(crate) fn text(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Back from text; `None` if it isn't `N` bytes.
pub(crate) fn parse<const N: usize>(text: &str) -> Option<[u8; N]> {
    bytes(text)?.try_into().ok()
}

/// Back from text; `None` if it isn't that of bytes.
pub(crate) fn bytes(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let byte = |index: usize| u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok();
    (0..text.len() / 2).map(byte).collect()
}
