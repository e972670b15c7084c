"""Names that a function in a file of C cannot have: keywords, and those of C's own functions."""

from __future__ import annotations

import re

from tapegrad import _core
from tapegrad.errors import OptionError

KEYWORDS = """
    auto break case char const continue default do double else enum extern float for goto if inline
    int long register restrict return short signed sizeof static struct switch typedef union
    unsigned void volatile while asm bool true false nullptr typeof alignas alignof constexpr
    static_assert thread_local main linux unix
    """

#: Functions of <math.h>, each for several types; the last row is no part of C99.
_OF_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs
    fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2
    logb lrint lround modf nan nearbyint nextafter nexttoward pow remainder remquo rint round
    scalbln scalbn sin sinh sqrt tan tanh tgamma trunc
    drem exp10 finite gamma isinf isnan j0 j1 jn pow10 roundeven scalb significand sincos y0 y1
    yn
    """
#: What names of these end with: float, long double, and the types that are no part of C99.
_TYPES = ("", "f", "l", "f16", "f32", "f32x", "f64", "f64x", "f128", "d32", "d64", "d128")
#: What else C99 has in <math.h> and <stdlib.h>.
_OF_STANDARD = """
    fpclassify isfinite isgreater isgreaterequal isless islessequal islessgreater isnormal
    isunordered signbit math_errhandling HUGE_VAL HUGE_VALF HUGE_VALL INFINITY NAN NULL
    abort abs atexit atof atoi atol atoll bsearch calloc div exit free getenv labs ldiv llabs lldiv
    malloc mblen mbstowcs mbtowc qsort rand realloc srand strtod strtof strtol strtold strtoll
    strtoul strtoull system wcstombs wctomb
    """
#: What these headers of Linux have besides.
_OF_LINUX = """
    a64l aligned_alloc alloca arc4random arc4random_buf arc4random_uniform at_quick_exit clearenv
    drand48 ecvt erand48 fcvt gcvt getloadavg getsubopt initstate jrand48 l64a lcong48 lgamma_r
    lgammaf_r lgammal_r lrand48 mkdtemp mkstemp mkstemps mktemp mrand48 nrand48 on_exit
    posix_memalign pselect putenv qecvt qfcvt qgcvt quick_exit rand_r random random_r reallocarray
    realpath rpmatch seed48 select setenv setstate signgam srand48 srandom strtoq strtouq uint ulong
    unsetenv ushort u_char u_int u_long u_short valloc fd_mask BYTE_ORDER NFDBITS
    """
#: What compilers know without a header: functions of <string.h>, <stdio.h>, <ctype.h>, <wctype.h>,
#: <complex.h>, <fenv.h> and others; the last three rows are no part of C99.
_BUILT_IN = """
    memchr memcmp memcpy memmove memset strcat strchr strcmp strcoll strcpy strcspn strerror strlen
    strncat strncmp strncpy strpbrk strrchr strspn strstr strtok strxfrm strftime
    clearerr fclose feof ferror fflush fgetc fgetpos fgets fopen fprintf fputc fputs fread freopen
    fscanf fseek fsetpos ftell fwrite getc getchar gets perror printf putc putchar puts remove
    rename rewind scanf setbuf setvbuf snprintf sprintf sscanf tmpfile tmpnam ungetc vfprintf
    vfscanf vprintf vscanf vsnprintf vsprintf vsscanf imaxabs imaxdiv
    isalnum isalpha isblank iscntrl isdigit isgraph islower isprint ispunct isspace isupper isxdigit
    iswalnum iswalpha iswblank iswcntrl iswdigit iswgraph iswlower iswprint iswpunct iswspace
    iswupper iswxdigit tolower toupper towlower towupper
    feclearexcept fegetenv fegetexceptflag fegetround feholdexcept feraiseexcept fesetenv
    fesetexceptflag fesetround fetestexcept feupdateenv
    bcmp bcopy bzero dcgettext dgettext execl execle execlp execv execve execvp ffs ffsimax ffsl
    ffsll fork gettext index isascii mempcpy rindex stpcpy stpncpy strcasecmp strdup strfmon
    strncasecmp strndup strnlen toascii gamma_r gammaf_r gammal_r
    """
#: Whole families: reserved names, types, and macros.
_FAMILIES = re.compile(
    "_[A-Z_].*|.*_t|.*_unlocked|"
    "c(abs|a?(cos|sin|tan)h?|arg|exp|imag|log(10)?|pow|proj|real|sqrt)[fl]?|conj[fl]?|"
    "(FP|MATH|M|EXIT|RAND|MB|FD)_[A-Z0-9_]+|[A-Z]+_ENDIAN|"
    "W(CONTINUED|EXIT.*|IF.*|NO.*|STOP.*|TERMSIG|UNTRACED)|(be|le)[0-9]+toh|hto[bl]e[0-9]+|"
    "(.rand48|[a-z]*state|s?random|.*cvt|l?cong48|seed48)_r"
)


def check_name(name: str) -> None:
    """Refuse what C, a compiler or a header of the file does not take for a function's name."""
    if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) or name in KEYWORDS.split():
        raise OptionError(f"to_c: expected name to be an identifier of C, got {name!r}")
    if name in _declared() or _FAMILIES.fullmatch(name):
        raise OptionError(f"to_c: expected a name that C's own functions leave free, got {name!r}")


def _declared() -> set[str]:
    ours = [f"{op['name']}{suffix}" for op in _core.op_table() for suffix in ("", "f")]
    theirs = [each + suffix for each in f"{_OF_MATH} signbit".split() for suffix in _TYPES]
    return {*ours, *theirs, *_OF_STANDARD.split(), *_OF_LINUX.split(), *_BUILT_IN.split()}
