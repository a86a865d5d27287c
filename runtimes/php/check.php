<?php
// Looks at a program without running it: `check.php SOURCE` (docs/DRIVERS.md, "The check").
// PHP compiles the program in a process of its own (`php -l`), because some mistakes end the process that finds them.

function say(string ...$fields): void
{
    echo count($fields), "\0", implode("\0", str_replace("\0", '', $fields)), "\0";
}

$source = $argv[1];
if (!str_contains((string) file_get_contents($source), '<?')) {
    say('note', 'there is no <?php: the whole text would be printed as it is');
}
$command = [PHP_BINARY, '-d', 'display_errors=stderr', '-d', 'log_errors=0', '-d', 'html_errors=0', '-d', 'memory_limit=-1', '-l', $source];
$process = proc_open($command, [['file', '/dev/null', 'r'], ['file', '/dev/null', 'w'], ['pipe', 'w']], $pipes);
$words = stream_get_contents($pipes[2]);
$status = proc_close($process);
$at = '/^(?:PHP )?(Parse error|Fatal error|Warning|Deprecated): +(.*) in ' . preg_quote($source, '/') . ' on line (\d+)$/m';
preg_match_all($at, $words, $found, PREG_SET_ORDER);
foreach ($found as [, $kind, $text, $line]) {
    if (str_ends_with($kind, 'error')) {
        say('error', $line, '', $text);
        $told = true;
    } else {
        say('note', "line $line: $text");
    }
}
if ($status !== 0 && !isset($told)) {
    say('error', '', '', trim($words) ?: 'PHP cannot read the program');
}
