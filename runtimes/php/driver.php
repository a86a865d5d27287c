<?php
// Runs programs in this PHP on behalf of the guest (protocol: docs/DRIVERS.md).
//
// Mode last only: a second run never comes. The program is included at the top level, so that its variables are
// globals as in a script; the driver's own names are in a class.
//
// Holds: variables are bound as values, never as text; a forked child never speaks on the channel; what PHP prints
// about an error is PHP's but for the driver's own frame.

final class PalisadeDriver
{
    private const CONTROL_FD = 3;
    private const READ_BYTES = 65536;
    private const FIELD_BYTES_MAX = 65536;
    private const JSON_DEPTH_MAX = 10000;
    private const FATAL = E_ERROR | E_PARSE | E_CORE_ERROR | E_COMPILE_ERROR | E_USER_ERROR | E_RECOVERABLE_ERROR;

    private static $channel;
    private static string $pending = '';
    private static int $owner;
    private static string $id = '';
    public static string $source = '';

    private static function open(): void
    {
        self::$channel = fopen('php://fd/' . self::CONTROL_FD, 'r+b');
        self::$owner = getmypid();
        stream_set_read_buffer(self::$channel, 0);
        self::close_on_exec();
        self::send('ready');
    }

    // PHP cannot close a descriptor that it did not open, nor mark one. With FFI it can; without, what the program
    // executes inherits the channel, on which nobody believes it anything.
    private static function close_on_exec(): void
    {
        try {
            if (class_exists('FFI', false)) {
                $c = FFI::cdef('int fcntl(int fd, int command, int flag); int dup3(int from, int to, int flags);', 'libc.so.6');
                $c->fcntl(self::CONTROL_FD, 2, 1);
                // Where fopen put its copy: the lowest that was free.
                for ($fd = self::CONTROL_FD + 1; $fd < 16; $fd++) {
                    if (@readlink("/proc/self/fd/$fd") === @readlink('/proc/self/fd/' . self::CONTROL_FD)) {
                        $c->fcntl($fd, 2, 1);
                    }
                }
            }
        } catch (Throwable) {
        }
    }

    private static function field(): ?string
    {
        while (($at = strpos(self::$pending, "\0")) === false) {
            $part = fread(self::$channel, self::READ_BYTES);
            if ($part === false || $part === '') {
                return null;
            }
            self::$pending .= $part;
        }
        $field = substr(self::$pending, 0, $at);
        self::$pending = substr(self::$pending, $at + 1);
        return $field;
    }

    private static function receive(): ?array
    {
        $fields = [];
        for ($count = (int) self::field(); $count > 0; $count--) {
            $field = self::field();
            if ($field === null) {
                return null;
            }
            $fields[] = $field;
        }
        return $fields;
    }

    private static function send(string ...$fields): void
    {
        if (getmypid() !== self::$owner) {
            return;
        }
        $data = count($fields) . "\0";
        foreach ($fields as $field) {
            $field = str_replace("\0", '', $field);
            if (strlen($field) > self::FIELD_BYTES_MAX) {
                // Cut between characters.
                $field = preg_replace('/[\x80-\xBF]*[\xC0-\xFF]?[\x80-\xBF]*\z/', '', substr($field, 0, self::FIELD_BYTES_MAX));
            }
            $data .= $field . "\0";
        }
        @fwrite(self::$channel, $data);
    }

    // What PHP prints of an error that nobody caught, without the driver's frame. A program that has a handler of its own
    // takes this one's place.
    public static function show(Throwable $error): never
    {
        $frame = '/\n#\d+ ' . preg_quote(__FILE__, '/') . '\(\d+\): require\(.*\)\n#(\d+) \{main\}/';
        $text = preg_replace_callback($frame, fn ($found) => "\n#" . ($found[1] - 1) . ' {main}', (string) $error);
        fwrite(STDERR, "PHP Fatal error:  Uncaught $text\n  thrown in {$error->getFile()} on line {$error->getLine()}\n");
        $line = $error->getFile() === self::$source ? (string) $error->getLine() : self::line_in($error->getTraceAsString());
        self::send('done', self::$id, 'error', '255', $error::class . ': ' . $error->getMessage(), $line, '', '', '', '');
        exit(255);
    }

    // Runs after the program, however it ended, and before the functions that the program registered for its end.
    public static function tell(): void
    {
        $error = error_get_last();
        if ($error === null || !($error['type'] & self::FATAL)) {
            return;
        }
        $message = strtok($error['message'], "\n");
        $line = $error['file'] === self::$source ? (string) $error['line'] : self::line_in($error['message']);
        $at = preg_quote($error['file'], '/') . ':' . $error['line'];
        $message = preg_replace(['/^Uncaught /', "/ in $at\$/"], '', $message);
        self::send('done', self::$id, 'error', '255', $message, $line, '', '', '', '');
    }

    // The program's own line of an error that was thrown elsewhere.
    private static function line_in(string $trace): string
    {
        return preg_match('/^#\d+ ' . preg_quote(self::$source, '/') . '\((\d+)\)/m', $trace, $found) ? $found[1] : '';
    }

    // An integer beyond 64 bits stays exact: it is a string of digits.
    private static function variables(string $json): array
    {
        return json_decode($json, true, self::JSON_DEPTH_MAX, JSON_BIGINT_AS_STRING | JSON_THROW_ON_ERROR);
    }

    // The environment of the run that follows, wherever PHP shows it.
    private static function give(array $pairs): void
    {
        foreach (array_chunk($pairs, 2) as [$name, $value]) {
            putenv("$name=$value");
            $_ENV[$name] = $_SERVER[$name] = $value;
        }
        // PHP's own streams read no variables for a proxy; the curl extension does.
        $proxy = getenv('http_proxy');
        if ($proxy !== false && str_starts_with($proxy, 'http://')) {
            $proxy = 'tcp://' . substr($proxy, strlen('http://'));
            stream_context_set_default(['http' => ['proxy' => $proxy, 'request_fulluri' => true]]);
        }
    }

    // Waits for the program; gives its variables, and tells it who it is.
    public static function begin(): array
    {
        self::open();
        $message = self::receive();
        if (($message[0] ?? '') === 'given') {
            self::give(array_slice($message, 1));
            $message = self::receive();
        }
        if (($message[0] ?? '') !== 'run') {
            exit(0);
        }
        [, self::$id, , self::$source, , , $count] = $message;
        $argv = [self::$source, ...array_slice($message, 7 + (int) $count)];
        $_SERVER['argv'] = $argv;
        $_SERVER['argc'] = count($argv);
        foreach (['PHP_SELF', 'SCRIPT_NAME', 'SCRIPT_FILENAME', 'PATH_TRANSLATED'] as $name) {
            $_SERVER[$name] = self::$source;
        }
        register_shutdown_function([self::class, 'tell']);
        set_exception_handler([self::class, 'show']);
        return ['argv' => $argv, 'argc' => count($argv)] + ($count ? self::variables($message[7]) : []);
    }
}

// At the top level and not in a function: its variables are the program's.
extract(PalisadeDriver::begin());
require PalisadeDriver::$source;
