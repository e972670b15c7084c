"""Models with torchvision's layers, keys and defaults, so that its weights can be loaded.

Example:
    >>> from tapegrad import models
    >>> model = models.resnet18(num_classes=10)
    >>> f"{sum(each.numel() for each in model.parameters()):,}"
    '11,181,642'

"""

from tapegrad.models.resnet import BasicBlock as BasicBlock
from tapegrad.models.resnet import Bottleneck as Bottleneck
from tapegrad.models.resnet import ResNet as ResNet
from tapegrad.models.resnet import resnet18 as resnet18
from tapegrad.models.resnet import resnet34 as resnet34
from tapegrad.models.resnet import resnet50 as resnet50
from tapegrad.models.resnet import resnet101 as resnet101
from tapegrad.models.resnet import resnet152 as resnet152
from tapegrad.models.vgg import VGG as VGG
from tapegrad.models.vgg import vgg11 as vgg11
from tapegrad.models.vgg import vgg11_bn as vgg11_bn
from tapegrad.models.vgg import vgg13 as vgg13
from tapegrad.models.vgg import vgg13_bn as vgg13_bn
from tapegrad.models.vgg import vgg16 as vgg16
from tapegrad.models.vgg import vgg16_bn as vgg16_bn
from tapegrad.models.vgg import vgg19 as vgg19
from tapegrad.models.vgg import vgg19_bn as vgg19_bn
