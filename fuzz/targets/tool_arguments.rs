//! What an MCP client sends: arguments of tools, addresses of resources, lines that cannot be parsed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    mcp::hostile::tool_arguments(text);
    mcp::hostile::percent_encoding(text);
    mcp::hostile::recovered_id(text.as_bytes());
});
